// The model against PyTorch and transformers in float64. Errors are 2-norms of differences over 2-norms, per tensor.

#include <cmath>

#include "golden_case.h"
#include "message.h"

using namespace skrull;
using test::GoldenCase;
using test::LoadedModel;
using test::StepResult;

namespace {

TransformerOptions options_for(const GoldenCase& golden, DType dtype = DType::float32,
                               Recompute recompute = Recompute::selective) {
  return {.compute_dtype = dtype, .max_tokens = golden.tokens, .recompute = recompute};
}

void check_close(const GoldenCase& golden, const StepResult& result, double tolerance) {
  CHECK(result.sums.supervised_tokens == golden.supervised);
  CHECK(std::abs(result.sums.weighted_loss / golden.floats("loss")[0] - 1) < tolerance);
  for (const auto& [name, gradient] : result.gradients) {
    const double error = test::relative_error(gradient, golden.floats("grad." + name));
    INFO(name << " is off by " << error);
    CHECK(error < tolerance);
  }
}

}  // namespace

TEST_CASE("fp32 logits, loss and every gradient are PyTorch's to 1e-5") {
  for (const std::string& name : test::golden_cases) {
    const GoldenCase golden(name);
    INFO(name);
    LoadedModel model(golden.folder, options_for(golden));
    CHECK(test::relative_error(model.logits(golden.batch()), golden.floats("logits")) < 1e-5);
    const LossSums sums = model.evaluate(golden.batch());
    CHECK(std::abs(sums.weighted_loss / golden.floats("loss")[0] - 1) < 1e-5);
    CHECK(sums.loss == Approx(sums.weighted_loss * static_cast<double>(golden.supervised)).epsilon(1e-6));
    check_close(golden, model.step(golden.batch()), 1e-5);
  }
}

TEST_CASE("bf16 gradients point where PyTorch's float64 gradients do") {
  for (const std::string& name : test::golden_cases) {
    const GoldenCase golden(name);
    INFO(name);
    LoadedModel model(golden.folder, options_for(golden, DType::bfloat16));
    const StepResult result = model.step(golden.batch());
    CHECK(std::abs(result.sums.weighted_loss / golden.floats("loss")[0] - 1) < 1e-2);
    for (const auto& [parameter, gradient] : result.gradients) {
      const double agreement = test::cosine(gradient, golden.floats("grad." + parameter));
      INFO(parameter << ": cosine " << agreement);
      CHECK(agreement > 0.999);
    }
  }
}

TEST_CASE("a small loss chunk changes nothing but rounding") {
  for (const std::string& name : {std::string("tied_mha_d16"), std::string("untied_gqa4_d16")}) {
    const GoldenCase golden(name);
    for (const std::int64_t chunk : {1, 3, 7}) {
      TransformerOptions options = options_for(golden);
      options.loss_chunk_tokens = chunk;
      LoadedModel model(golden.folder, options);
      CHECK(model.model.options().loss_chunk_tokens == chunk);
      check_close(golden, model.step(golden.batch()), 1e-5);
      CHECK(test::relative_error(model.logits(golden.batch()), golden.floats("logits")) < 1e-5);
    }
  }
}

TEST_CASE("every recompute mode gives the same bits") {
  for (const std::string& name : test::golden_cases) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const GoldenCase golden(name);
      INFO(name << " in " << name_of(dtype));
      LoadedModel keeping(golden.folder, options_for(golden, dtype, Recompute::none));
      const StepResult expected = keeping.step(golden.batch());
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        LoadedModel recomputing(golden.folder, options_for(golden, dtype, recompute));
        const StepResult result = recomputing.step(golden.batch());
        CHECK(result.sums.weighted_loss == expected.sums.weighted_loss);
        CHECK(result.gradients == expected.gradients);
      }
    }
  }
}

TEST_CASE("packed sequences are what each is alone") {
  for (const std::string& name : test::golden_cases) {
    const GoldenCase golden(name);
    INFO(name);
    LoadedModel model(golden.folder, options_for(golden));
    const StepResult packed = model.step(golden.batch());
    LossSums sums;
    std::map<std::string, std::vector<float>> gradients;
    for (std::size_t i = golden.ids.size(); i-- > 0;) {
      const StepResult alone =
          model.step(test::pack({golden.ids[i]}, {golden.labels[i]}, 1.0F / static_cast<float>(golden.supervised)));
      sums.weighted_loss += alone.sums.weighted_loss;
      for (const auto& [parameter, gradient] : alone.gradients) {
        std::vector<float>& total = gradients[parameter];
        total.resize(gradient.size());
        for (std::size_t e = 0; e < gradient.size(); ++e) total[e] += gradient[e];
      }
    }
    CHECK(std::abs(sums.weighted_loss / packed.sums.weighted_loss - 1) < 1e-6);
    for (const auto& [parameter, gradient] : gradients) {
      INFO(parameter);
      CHECK(test::relative_error(gradient, packed.gradients.at(parameter)) < 1e-5);
    }
  }
}

TEST_CASE("one token changed leaves every other sequence's logits the same bits") {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const std::string& name : test::golden_cases) {
      const GoldenCase golden(name);
      INFO(name << " in " << name_of(dtype));
      LoadedModel model(golden.folder, options_for(golden, dtype));
      MicroBatch batch = golden.batch();
      const std::vector<float> before = model.logits(batch);
      const PackedSequence changed = batch.local[2];
      auto& token = batch.ids[static_cast<std::size_t>(changed.begin)];
      token = (token + 1) % static_cast<std::int32_t>(model.config.vocab_size);
      const std::vector<float> after = model.logits(batch);
      for (const PackedSequence& sequence : batch.local) {
        const auto begin = static_cast<std::ptrdiff_t>(sequence.begin * model.config.vocab_size);
        const auto end = begin + static_cast<std::ptrdiff_t>(sequence.length * model.config.vocab_size);
        const bool same = std::equal(before.begin() + begin, before.begin() + end, after.begin() + begin);
        CHECK(same == (sequence.begin != changed.begin));
      }
    }
  }
}

TEST_CASE("a micro-batch's gradients are added to what the sink holds") {
  const GoldenCase golden("untied_gqa4_d16");
  LoadedModel model(golden.folder, options_for(golden));
  model.attention.set_batch(golden.batch());
  test::CollectedGradients gradients(*model.device, model.model.parameters());
  model.model.forward_backward(golden.batch(), *model.parameters, model.attention, gradients);
  model.model.forward_backward(golden.batch(), *model.parameters, model.attention, gradients);
  for (const auto& [name, gradient] : gradients.by_name()) {
    std::vector<float> doubled = golden.floats("grad." + name);
    for (float& value : doubled) value *= 2;
    INFO(name);
    CHECK(test::relative_error(gradient, doubled) < 1e-5);
  }
}
