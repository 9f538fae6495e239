#include "skrull/train/datasets.h"

#include <atomic>
#include <utility>

#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/data/chat_encoder.h"
#include "skrull/data/loader.h"
#include "skrull/data/sample_report.h"

namespace skrull {

namespace {

/// The val_size rows of `store` for evaluation, the others for training.
Datasets split(const std::shared_ptr<const TokenStore>& store, const TrainConfig& config, ControlChannel& control) {
  SampleSplit samples = control.run_together(
      [&] { return split_samples(store->size(), config.val_size, static_cast<std::uint64_t>(config.seed)); });
  return {{store, std::move(samples.train)}, {store, std::move(samples.eval)}};
}

}  // namespace

std::unique_ptr<TextEncoder> load_text_encoder(const TrainConfig& config) {
  return load_chat_encoder(tokenizer_folder(config));
}

std::shared_ptr<const TokenStore> open_token_store(const std::vector<std::filesystem::path>& files,
                                                   const TrainConfig& config, const TextEncoder* encoder,
                                                   std::int64_t vocab_size, const std::filesystem::path& cache_folder,
                                                   ControlChannel& control, StopRequest* stop) {
  std::atomic<bool> cancelled{false};
  const auto build = [&] {
    TokenStoreRequest request;
    request.files = files;
    request.encoder = encoder;
    request.options = {config.cutoff_len, config.overlength, vocab_size};
    request.cache_folder = cache_folder;
    request.threads = config.preprocessing_num_workers;
    request.stop_wanted = [&] { return cancelled.load(); };
    return build_token_store(request).string();
  };
  const std::filesystem::path cache_file = control.run_on_root(
      build, [stop] { return stop != nullptr && stop->wanted_here(); }, [&] { cancelled = true; });
  return control.run_together([&] { return std::make_shared<const TokenStore>(cache_file, files); });
}

Datasets load_datasets(const TrainConfig& config, const TextEncoder* encoder, std::int64_t vocab_size,
                       const std::filesystem::path& cache_folder, ControlChannel& control, StopRequest* stop) {
  Datasets datasets;
  const auto open = [&](const std::vector<std::filesystem::path>& files) {
    return open_token_store(files, config, encoder, vocab_size, cache_folder, control, stop);
  };
  datasets.train.store = open(config.dataset);
  if (config.eval_dataset.empty()) return split(datasets.train.store, config, control);
  datasets.train.samples = all_samples(*datasets.train.store);
  datasets.eval.store = open(config.eval_dataset);
  datasets.eval.samples = all_samples(*datasets.eval.store);
  return datasets;
}

Dataset load_evaluation_data(const TrainConfig& config, const TextEncoder* encoder, std::int64_t vocab_size,
                             const std::filesystem::path& cache_folder, ControlChannel& control) {
  const auto& files = config.eval_dataset.empty() ? config.dataset : config.eval_dataset;
  if (files.empty()) {
    control.agree_or_throw("there is nothing to evaluate on; give eval_dataset or dataset",
                           static_cast<int>(ExitCode::invalid_input));
  }
  const auto store = open_token_store(files, config, encoder, vocab_size, cache_folder, control);
  if (config.val_size.empty()) return {store, all_samples(*store)};
  return split(store, config, control).eval;
}

void report_rows(const std::string& title, const TokenStore& store, const TrainConfig& config) {
  log::info("{}: {}", title, describe_rows(store.report(), store.files(), config.cutoff_len));
  for (const std::string& line : describe_ignored_columns(store.report(), store.files())) log::warning("{}", line);
}

void report_lengths(const std::string& title, const Dataset& dataset, std::int64_t max_position_embeddings) {
  const TokenStore& store = *dataset.store;
  const LengthStatistics statistics = measure_lengths(store, dataset.samples);
  log::info("{}: {}", title, describe_lengths(statistics));
  if (const auto warning = position_limit_warning(store, statistics, max_position_embeddings))
    log::warning("{}", *warning);
}

void report_first_sample(const std::string& title, const Dataset& dataset, const TextEncoder* encoder) {
  log::info("{}: the first sample:\n{}", title, describe_sample(*dataset.store, dataset.samples.front(), encoder));
}

}  // namespace skrull
