#pragma once
// The one table of options. Parsing, overrides, --help, the schema, the reference and the echo all read it.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/config/train_config.h"
#include "value_codec.h"

namespace skrull {

/// A member of TrainConfig together with how its value is read and written.
class OptionValue {
 public:
  OptionValue() = default;
  OptionValue(const OptionValue&) = delete;
  OptionValue& operator=(const OptionValue&) = delete;
  virtual ~OptionValue() = default;

  /// Sets the member and returns true, or reports what is wrong and leaves the config as it was.
  virtual bool assign(const OrderedJson& json, TrainConfig& config, const ProblemSink& problems) const = 0;
  virtual OrderedJson to_json(const TrainConfig& config) const = 0;
  /// The member holds nothing: an empty path, list or optional.
  virtual bool is_empty(const TrainConfig& config) const = 0;

  virtual OrderedJson from_text(std::string_view text) const = 0;
  virtual OrderedJson schema() const = 0;
  virtual bool null_is_empty() const = 0;
  virtual std::string type_name() const = 0;
  virtual std::string allowed() const = 0;
  virtual bool accepts_switch() const = 0;
  virtual const ChoiceNames* choices() const = 0;
};

enum class OptionGroup { model, data, batch, run_length, optimizer, compute, output };

struct Option {
  std::string_view name;  ///< dotted path: nested objects in JSON
  OptionGroup group{};
  std::shared_ptr<const OptionValue> value;
  std::string_view help;  ///< may hold `code` and end without a full stop
  std::string_view unit{};
  std::string_view default_note{};                  ///< said in place of the default where that is decided at run time
  std::vector<std::string_view> aliases{};          ///< other names that are accepted
  std::vector<std::string_view> known_elsewhere{};  ///< names in other tools: not accepted, but answered with this one
  bool required_for_training = false;
  bool fixed_on_resume = false;  ///< decides the order of the data or the loss: a run can't continue under another
};

/// All options, in the order of the documentation.
const std::vector<Option>& option_table();

/// The option of this name or alias, or nullptr.
const Option* find_option(std::string_view name);

/// What the user probably meant by an unknown key: "; did you mean x?", "; the option for this is x" or "".
std::string suggestion_for(std::string_view unknown_key);

std::string_view title_of(OptionGroup group);

/// Where the option stands in a JSON config: "scheduler.policy" -> /scheduler/policy.
OrderedJson::json_pointer pointer_to(std::string_view name);

}  // namespace skrull
