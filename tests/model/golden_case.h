#pragma once
// A small model of tests/data/model with what PyTorch computed in float64 (see the README there).

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "model_fixture.h"
#include "skrull/model/safetensors.h"
#include "support/support.h"

namespace skrull::test {

inline const std::vector<std::string> golden_cases = {"tied_mha_d16",     "untied_gqa4_d16",      "tied_gqa7_d64",
                                                      "untied_gqa2_d128", "untied_gqa2_d16_long", "tied_mha_d16_bf16"};

class GoldenCase {
 public:
  explicit GoldenCase(const std::string& name)
      : folder(test_data("model") / name), values_(folder / "golden.safetensors") {
    std::size_t begin = 0;
    const std::vector<std::int32_t> all_ids = read<std::int32_t>("input_ids");
    const std::vector<std::int32_t> all_labels = read<std::int32_t>("labels");
    for (const std::int32_t length : read<std::int32_t>("sequence_lengths")) {
      const auto end = begin + static_cast<std::size_t>(length);
      ids.emplace_back(all_ids.begin() + static_cast<std::ptrdiff_t>(begin),
                       all_ids.begin() + static_cast<std::ptrdiff_t>(end));
      labels.emplace_back(all_labels.begin() + static_cast<std::ptrdiff_t>(begin),
                          all_labels.begin() + static_cast<std::ptrdiff_t>(end));
      begin = end;
    }
    for (const std::int32_t label : all_labels) supervised += label != ignored_label ? 1 : 0;
    tokens = static_cast<std::int64_t>(all_ids.size());
  }

  /// All sequences packed; the loss is the mean over supervised tokens.
  MicroBatch batch() const { return pack(ids, labels, 1.0F / static_cast<float>(supervised)); }
  std::vector<float> floats(const std::string& name) const { return read<float>(name); }

  std::filesystem::path folder;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::vector<std::int32_t>> labels;
  std::int64_t supervised = 0;
  std::int64_t tokens = 0;

 private:
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const StoredTensor* tensor = values_.find(name);
    require(tensor != nullptr && tensor->dtype == dtype_of<T>, "{}: no {} of the expected dtype", folder.string(),
            name);
    std::vector<T> values(tensor->bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }

  SafetensorsReader values_;
};

}  // namespace skrull::test
