// A small trained model whose outputs are known from a float64 computation (reference data, not part of the project).

#include <cmath>
#include <cstring>

#include "message.h"
#include "model_fixture.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/model/safetensors.h"
#include "support/support.h"

using namespace skrull;
namespace fs = std::filesystem;

namespace {

template <class T>
std::vector<T> read_binary(const fs::path& file) {
  const MappedFile mapped(file);
  std::vector<T> values(mapped.bytes().size() / sizeof(T));
  std::memcpy(values.data(), mapped.bytes().data(), mapped.bytes().size());
  return values;
}

/// One sequence, every token but the last supervised.
MicroBatch next_token_batch(const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> labels(ids.begin() + 1, ids.end());
  labels.push_back(ignored_label);
  return test::pack({ids}, {labels}, 1.0F / static_cast<float>(ids.size() - 1));
}

}  // namespace

TEST_CASE("a trained model's logits and loss are the reference's") {
  const auto folder = test::reference_data("tiny/stories260k-qwen2");
  if (!folder) return;
  const std::vector<std::int32_t> ids = read_binary<std::int32_t>(*folder / "input_ids_i32.bin");
  const Json golden = read_json_file(*folder / "golden.json");
  const std::vector<float> expected = read_binary<float>(*folder / "logits_f32.bin");
  test::LoadedModel model(*folder, {.max_tokens = static_cast<std::int64_t>(ids.size())});
  const MicroBatch batch = next_token_batch(ids);
  const std::vector<float> logits = model.logits(batch);
  REQUIRE(logits.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - static_cast<double>(expected[i])));
  }
  CHECK(worst < 1e-4);
  CHECK(std::abs(model.evaluate(batch).weighted_loss - golden["mean_nll_next_token"].get<double>()) < 1e-6);
}

TEST_CASE("bf16 weights of a trained model give the reference's loss") {
  const auto source = test::reference_data("tiny/stories260k-qwen2");
  if (!source) return;
  const test::TemporaryFolder folder;
  fs::copy_file(*source / "config.json", folder / "config.json");
  fs::copy_file(*source / "model.bf16.safetensors", folder / "model.safetensors");
  const std::vector<std::int32_t> ids = read_binary<std::int32_t>(*source / "input_ids_i32.bin");
  test::LoadedModel model(folder.path(), {.max_tokens = static_cast<std::int64_t>(ids.size())});
  const Json golden = read_json_file(*source / "golden.json");
  CHECK(std::abs(model.evaluate(next_token_batch(ids)).weighted_loss - golden["mean_nll_bf16_weights"].get<double>()) <
        1e-6);
}

TEST_CASE("biases change what a trained model computes") {
  const auto plain = test::reference_data("tiny/stories260k-qwen2");
  const auto biased = test::reference_data("tiny/stories260k-qwen2-bias");
  if (!plain || !biased) return;
  const std::vector<std::int32_t> ids = read_binary<std::int32_t>(*biased / "input_ids_i32.bin");
  const TransformerOptions options = {.max_tokens = static_cast<std::int64_t>(ids.size())};
  const MicroBatch batch = next_token_batch(ids);
  test::LoadedModel with(*biased, options);
  const double with_bias = with.evaluate(batch).weighted_loss;
  test::LoadedModel without(*plain, options);
  CHECK(std::isfinite(with_bias));
  CHECK(std::abs(with_bias - without.evaluate(batch).weighted_loss) > 1e-3);
}
