#include "skrull/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "skrull/core/error.h"
#include "skrull/core/rng.h"

namespace skrull {
namespace {

void check(const GenerateOptions& options, const std::vector<std::int32_t>& prompt, const KvCache& cache,
           std::int64_t vocab_size) {
  if (prompt.empty()) throw_invalid_input("the prompt is empty: there is nothing to continue");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < vocab_size) continue;
    throw_invalid_input("token {} of the prompt is {}, outside the model's vocabulary of {} tokens", i + 1, prompt[i],
                        vocab_size);
  }
  if (static_cast<std::int64_t>(prompt.size()) > cache.capacity()) {
    throw_invalid_input("the prompt of {} tokens is longer than the {} tokens there is memory for", prompt.size(),
                        cache.capacity());
  }
  if (options.max_new_tokens < 0) throw_invalid_input("max_new_tokens {} is negative", options.max_new_tokens);
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    throw_invalid_input("temperature {}: expected 0 (greedy) or more", options.temperature);
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw_invalid_input("top_p {}: expected more than 0 and at most 1", options.top_p);
  }
}

/// The sequence that is being continued.
class Continuation {
 public:
  Continuation(Transformer& model, ParameterProvider& parameters, KvCache& cache, Device& device)
      : model_(model),
        parameters_(parameters),
        cache_(cache),
        device_(device),
        logits_(device.allocate(DType::float32, 1, model.config().vocab_size, "logits")),
        host_(static_cast<std::size_t>(model.config().vocab_size)) {
    cache.clear();
  }

  /// Logits after `tokens`, which are appended.
  const std::vector<float>& after(const std::vector<std::int32_t>& tokens) {
    const auto most = static_cast<std::size_t>(model_.options().max_tokens);
    for (std::size_t begin = 0; begin < tokens.size(); begin += most) {
      const std::size_t end = std::min(tokens.size(), begin + most);
      append(tokens, begin, end, end == tokens.size());
    }
    return host_;
  }

 private:
  void append(const std::vector<std::int32_t>& tokens, std::size_t begin, std::size_t end, bool want_logits) {
    MicroBatch batch;
    const auto first_position = cache_.filled();
    for (std::size_t i = begin; i < end; ++i) {
      batch.ids.push_back(tokens[i]);
      batch.positions.push_back(static_cast<std::int32_t>(first_position + static_cast<std::int64_t>(i - begin)));
    }
    batch.labels.assign(batch.ids.size(), ignored_label);
    batch.weights.assign(batch.ids.size(), 0.0F);
    batch.local = {{.begin = 0, .length = batch.tokens(), .sample = 0}};
    std::vector<std::int32_t> rows;
    if (want_logits) rows.push_back(static_cast<std::int32_t>(batch.tokens() - 1));
    const auto count = static_cast<std::int64_t>(rows.size());
    const TensorView view = logits_.view(DType::float32, count, model_.config().vocab_size);
    model_.logits(batch, rows, parameters_, cache_, view);
    if (!want_logits) return;
    device_.copy_to_host(device_.compute_stream(), host_.data(), view);
    device_.compute_stream().synchronize();
    if (std::all_of(host_.begin(), host_.end(), [](float logit) { return std::isfinite(logit); })) return;
    throw_run_failure("the logits behind token {} are not finite; does the model hold weights that are not?",
                      cache_.filled());
  }

  Transformer& model_;
  ParameterProvider& parameters_;
  KvCache& cache_;
  Device& device_;
  Buffer logits_;
  std::vector<float> host_;
};

/// Ids by falling logit, equal ones by rising id.
std::vector<std::int32_t> by_likelihood(const std::vector<float>& logits) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  return ids;
}

}  // namespace

std::int32_t sample_token(const std::vector<float>& logits, double temperature, double top_p, double uniform) {
  const std::vector<std::int32_t> ids = by_likelihood(logits);
  const auto logit = [&](std::size_t rank) {
    return static_cast<double>(logits[static_cast<std::size_t>(ids[rank])]) / temperature;
  };
  std::vector<double> weights;
  double total = 0;
  for (std::size_t rank = 0; rank < ids.size(); ++rank) total += weights.emplace_back(std::exp(logit(rank) - logit(0)));
  double kept = 0;
  std::size_t count = 0;
  while (count < ids.size() && (count == 0 || kept < top_p * total)) kept += weights[count++];
  double remaining = uniform * kept;
  for (std::size_t rank = 0; rank + 1 < count; ++rank) {
    if (remaining < weights[rank]) return ids[rank];
    remaining -= weights[rank];
  }
  return ids[count - 1];
}

std::vector<std::int32_t> generate(Transformer& model, ParameterProvider& parameters, KvCache& cache, Device& device,
                                   const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                                   const TokenCallback& on_token) {
  check(options, prompt, cache, model.config().vocab_size);
  Rng rng(options.seed, "generate");
  Continuation continuation(model, parameters, cache, device);
  std::vector<std::int32_t> generated;
  std::vector<std::int32_t> next = prompt;
  while (static_cast<std::int64_t>(generated.size()) < options.max_new_tokens &&
         cache.filled() + static_cast<std::int64_t>(next.size()) <= cache.capacity()) {
    const std::vector<float>& logits = continuation.after(next);
    const std::int32_t id =
        options.temperature == 0
            ? static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())
            : sample_token(logits, options.temperature, options.top_p, rng.uniform());
    generated.push_back(id);
    if (on_token) on_token(id);
    if (std::find(options.eos_token_ids.begin(), options.eos_token_ids.end(), id) != options.eos_token_ids.end()) break;
    next = {id};
  }
  return generated;
}

}  // namespace skrull
