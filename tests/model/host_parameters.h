#pragma once
// Master values of a small model in host memory.

#include <vector>

#include "skrull/core/tensor.h"
#include "skrull/model/model_io.h"
#include "skrull/model/parameter_table.h"

namespace skrull::test {

class HostParameters {
 public:
  explicit HostParameters(const ParameterTable& table) : table_(&table) {
    for (int block = 0; block < table.block_count(); ++block) {
      blocks_.emplace_back(static_cast<std::size_t>(table.block_elements(block)));
    }
  }

  TensorView block(int index) {
    std::vector<float>& values = blocks_.at(static_cast<std::size_t>(index));
    return {values.data(), DType::float32, 1, static_cast<std::int64_t>(values.size())};
  }
  BlockOnHost blocks() {
    return [this](int index) { return block(index); };
  }
  std::vector<float>& values(int block) { return blocks_.at(static_cast<std::size_t>(block)); }
  /// Of one parameter, rows after each other.
  std::vector<float> values(const std::string& name) {
    const TensorView view = slice_parameter(block(table_->find(name).block), table_->find(name));
    return {view.as<float>(), view.as<float>() + view.elements()};
  }
  bool operator==(const HostParameters& other) const { return blocks_ == other.blocks_; }

 private:
  const ParameterTable* table_;
  std::vector<std::vector<float>> blocks_;
};

}  // namespace skrull::test
