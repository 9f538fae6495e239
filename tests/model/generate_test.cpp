#include "skrull/train/generate.h"

#include <algorithm>
#include <cmath>

#include "golden_case.h"
#include "message.h"
#include "skrull/core/json.h"
#include "support/support.h"

using namespace skrull;
using test::contains_all;
using test::GoldenCase;
using test::LoadedModel;

namespace {

/// A model and a cache to continue its sequences with.
struct Generator {
  Generator(const std::filesystem::path& folder, std::int64_t max_tokens, std::int64_t capacity)
      : loaded(folder, {.max_tokens = max_tokens, .training = false}),
        cache(loaded.config, DType::float32, capacity, *loaded.device) {}

  std::vector<std::int32_t> generate(const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                                     const TokenCallback& on_token = {}) {
    return skrull::generate(loaded.model, *loaded.parameters, cache, *loaded.device, prompt, options, on_token);
  }

  LoadedModel loaded;
  KvCache cache;
};

std::vector<float> row_of(const std::vector<float>& logits, std::int64_t row, std::int64_t vocabulary) {
  const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * vocabulary);
  return {begin, begin + static_cast<std::ptrdiff_t>(vocabulary)};
}

}  // namespace

TEST_CASE("cached logits are the uncached ones, however a sequence is cut") {
  for (const char* name : {"tied_gqa7_d64", "untied_gqa4_d16", "untied_gqa2_d16_long"}) {
    const GoldenCase golden(name);
    INFO(name);
    const std::vector<std::int32_t>& ids =
        *std::max_element(golden.ids.begin(), golden.ids.end(), [](auto& a, auto& b) { return a.size() < b.size(); });
    const auto length = static_cast<std::int64_t>(ids.size());
    const std::vector<std::int32_t> no_labels(ids.size(), ignored_label);
    Generator generator(golden.folder, length, length);
    LoadedModel& model = generator.loaded;
    const std::vector<float> whole = model.logits(test::pack({ids}, {no_labels}, 0));
    for (const std::int64_t piece : {std::int64_t{1}, std::int64_t{5}, length}) {
      generator.cache.clear();
      for (std::int64_t begin = 0; begin < length; begin += piece) {
        const std::int64_t end = std::min(length, begin + piece);
        MicroBatch batch = test::pack({{ids.begin() + begin, ids.begin() + end}},
                                      {{no_labels.begin() + begin, no_labels.begin() + end}}, 0);
        for (std::int32_t& position : batch.positions) position += static_cast<std::int32_t>(begin);
        const auto last = static_cast<std::int32_t>(end - begin - 1);
        const std::vector<float> cached = model.logits(batch, {last}, generator.cache);
        CHECK(test::relative_error(cached, row_of(whole, end - 1, model.config.vocab_size)) < 1e-5);
        CHECK(generator.cache.filled() == end);
      }
      CHECK_THROWS_AS(model.logits(test::pack({{1}}, {{ignored_label}}, 0), {0}, generator.cache), RunFailure);
    }
  }
}

TEST_CASE("a cache takes the memory that was planned") {
  const GoldenCase golden("untied_gqa4_d16");
  const Qwen2Config config = load_qwen2_config(golden.folder);
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const KvCache cache(config, DType::bfloat16, 33, *device);
  CHECK(KvCache::planned_bytes(config, DType::bfloat16, 33) == 2 * 2 * 33 * 2 * 16 * 2);
  CHECK(device->memory().current_bytes() == KvCache::planned_bytes(config, DType::bfloat16, 33));
}

TEST_CASE("greedy text of a trained model is the reference's, whatever the pieces of the prompt") {
  const auto folder = test::reference_data("tiny/stories260k-qwen2");
  if (!folder) return;
  const auto expected = read_json_file(*folder / "golden.json")["greedy_from_bos"].get<std::vector<std::int32_t>>();
  for (const std::int64_t prompt_length : {1, 40}) {
    for (const std::int64_t max_tokens : {1, 7, 64}) {
      Generator generator(*folder, max_tokens, static_cast<std::int64_t>(expected.size()));
      const std::vector<std::int32_t> prompt(expected.begin(), expected.begin() + prompt_length);
      GenerateOptions options;
      options.max_new_tokens = static_cast<std::int64_t>(expected.size()) - prompt_length;
      std::vector<std::int32_t> told;
      const std::vector<std::int32_t> ids =
          generator.generate(prompt, options, [&](std::int32_t id) { told.push_back(id); });
      CHECK(ids == std::vector<std::int32_t>(expected.begin() + prompt_length, expected.end()));
      CHECK(told == ids);
    }
  }
}

TEST_CASE("generation ends at an eos token, the limit, or the end of the cache") {
  const GoldenCase golden("tied_mha_d16");
  Generator generator(golden.folder, 8, 20);
  const std::vector<std::int32_t> prompt = {5, 6, 7};
  GenerateOptions options;
  options.temperature = 5;
  options.seed = 1;
  options.max_new_tokens = 100;
  // The last new token needs no place in the cache.
  const std::vector<std::int32_t> all = generator.generate(prompt, options);
  CHECK(all.size() == 18);
  options.max_new_tokens = 6;
  const std::vector<std::int32_t> six(all.begin(), all.begin() + 6);
  CHECK(generator.generate(prompt, options) == six);
  options.max_new_tokens = 0;
  CHECK(generator.generate(prompt, options).empty());
  options.max_new_tokens = 100;
  options.eos_token_ids = {1000, all[4]};
  const auto end = std::find(all.begin(), all.end(), all[4]) + 1;
  CHECK(generator.generate(prompt, options) == std::vector<std::int32_t>(all.begin(), end));
}

TEST_CASE("the same seed draws the same tokens, another seed others") {
  const GoldenCase golden("tied_mha_d16");
  Generator generator(golden.folder, 8, 30);
  GenerateOptions options;
  options.temperature = 2;
  options.top_p = 0.95;
  options.max_new_tokens = 25;
  const std::vector<std::int32_t> first = generator.generate({1, 2}, options);
  CHECK(generator.generate({1, 2}, options) == first);
  options.seed = 1;
  CHECK(generator.generate({1, 2}, options) != first);
}

TEST_CASE("a draw follows the probabilities") {
  // Probabilities 0.1, 0.4, 0.2, 0.3 at temperature 1.
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(2.0F), std::log(3.0F)};
  const auto draw = [&](double temperature, double top_p, double uniform) {
    return sample_token(logits, temperature, top_p, uniform);
  };
  CHECK(draw(1, 1, 0.0) == 1);
  CHECK(draw(1, 1, 0.399) == 1);
  CHECK(draw(1, 1, 0.401) == 3);
  CHECK(draw(1, 1, 0.699) == 3);
  CHECK(draw(1, 1, 0.701) == 2);
  CHECK(draw(1, 1, 0.899) == 2);
  CHECK(draw(1, 1, 0.901) == 0);
  CHECK(draw(1, 1, 0.9999999) == 0);
  // 0.4 and 0.3 reach 0.7: 4/7 and 3/7 remain.
  CHECK(draw(1, 0.69, 0.57) == 1);
  CHECK(draw(1, 0.69, 0.572) == 3);
  CHECK(draw(1, 0.69, 0.9999999) == 3);
  CHECK(draw(1, 0.01, 0.9999999) == 1);
  // Temperature 1/2 squares: 16, 9, 4, 1 of 30.
  CHECK(draw(0.5, 1, 0.533) == 1);
  CHECK(draw(0.5, 1, 0.534) == 3);
  CHECK(draw(0.5, 1, 0.832) == 3);
  CHECK(draw(0.5, 1, 0.834) == 2);
}

TEST_CASE("prompts and options that make no sense are refused") {
  const GoldenCase golden("tied_mha_d16");
  Generator generator(golden.folder, 8, 10);
  const auto refusal = [&](const std::vector<std::int32_t>& prompt, const GenerateOptions& options) {
    return test::message_of<InvalidInput>([&] { generator.generate(prompt, options); });
  };
  CHECK(contains_all(refusal({}, {}), {"prompt is empty"}));
  CHECK(contains_all(refusal(std::vector<std::int32_t>(11, 1), {}), {"11 tokens", "10 tokens"}));
  CHECK(contains_all(refusal({97}, {}), {"token 1 of the prompt is 97", "vocabulary of 97"}));
  GenerateOptions options;
  options.temperature = -1;
  CHECK(contains_all(refusal({1}, options), {"temperature -1"}));
  options = {};
  options.top_p = 0;
  CHECK(contains_all(refusal({1}, options), {"top_p 0"}));
  options = {};
  options.max_new_tokens = -1;
  CHECK(contains_all(refusal({1}, options), {"max_new_tokens -1"}));
}
