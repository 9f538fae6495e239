#include "skrull/config/config_changes.h"

#include "option_table.h"
#include "skrull/core/error.h"

namespace skrull {

std::vector<ConfigChange> changes_since(const std::string& saved, const std::string& origin,
                                        const TrainConfig& config) {
  static const TrainConfig defaults;
  std::vector<std::string> ignored;
  const OrderedJson before = parse_ordered_json(saved, origin, ignored);
  if (!before.is_object()) throw_invalid_input("{}: expected a config, got {}", origin, describe_json(before));
  std::vector<ConfigChange> changes;
  for (const Option& option : option_table()) {
    const auto place = pointer_to(option.name);
    const OrderedJson old_value = before.contains(place) ? before.at(place) : option.value->to_json(defaults);
    const OrderedJson new_value = option.value->to_json(config);
    if (old_value == new_value) continue;
    changes.push_back({std::string(option.name), old_value.dump(), new_value.dump(), !option.fixed_on_resume});
  }
  return changes;
}

}  // namespace skrull
