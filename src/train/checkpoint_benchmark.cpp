#include "skrull/train/checkpoint_benchmark.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "skrull/config/config_docs.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/core/median.h"
#include "skrull/core/raw_file.h"
#include "skrull/core/rng.h"
#include "skrull/core/stopwatch.h"
#include "skrull/device/ops.h"
#include "skrull/train/checkpoint_saver.h"
#include "skrull/train/checkpoint_state.h"
#include "skrull/train/model_state.h"
#include "skrull/train/rank_session.h"
#include "skrull/train/resume.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

constexpr std::int64_t plain_step = std::int64_t{16} << 20;
constexpr std::int64_t first_step = 1;

void write_model_config(const fs::path& folder, const Qwen2Config& model) {
  write_json_file(folder / "config.json", {{"architectures", {"Qwen2ForCausalLM"}},
                                           {"model_type", "qwen2"},
                                           {"vocab_size", model.vocab_size},
                                           {"hidden_size", model.hidden_size},
                                           {"intermediate_size", model.intermediate_size},
                                           {"num_hidden_layers", model.num_layers},
                                           {"num_attention_heads", model.num_heads},
                                           {"num_key_value_heads", model.num_kv_heads},
                                           {"head_dim", model.head_dim},
                                           {"tie_word_embeddings", model.tie_word_embeddings},
                                           {"torch_dtype", "bfloat16"}});
}

/// So that the next read comes from the disk.
void drop_from_cache(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

double seconds_of(const std::function<void()>& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

/// Plain files of as many bytes as the checkpoint has, like dd's.
class PlainFile {
 public:
  PlainFile(fs::path file, std::int64_t bytes) : file_(std::move(file)), bytes_(bytes), memory_(plain_step) {
    auto* words = reinterpret_cast<std::uint64_t*>(memory_.data());
    for (std::int64_t i = 0; i < plain_step / 8; ++i) words[i] = random_bits(1, static_cast<std::uint64_t>(i));
  }

  double write() {
    return timed_on_new_file([&] {
      AtomicFileWriter writer(file_);
      for_steps([&](std::int64_t /*offset*/, std::int64_t bytes) { writer.write(memory_.data(), bytes); });
      writer.commit();
    });
  }
  double write_direct() {
    return timed_on_new_file([&] {
      RawFile file(file_, RawFile::Access::write);
      for_steps([&](std::int64_t offset, std::int64_t bytes) { file.write(memory_.data(), bytes, offset); });
      file.flush();
    });
  }
  /// At an address that is not aligned, so through the page cache.
  double read() { return read_to(memory_.data() + 1, plain_step - direct_alignment); }
  double read_direct() { return read_to(memory_.data(), plain_step); }
  void remove() { fs::remove(file_); }

 private:
  void for_steps(const std::function<void(std::int64_t offset, std::int64_t bytes)>& use) const {
    for (std::int64_t offset = 0; offset < bytes_; offset += plain_step) {
      use(offset, std::min(plain_step, bytes_ - offset));
    }
  }
  double timed_on_new_file(const std::function<void()>& work) {
    fs::remove(file_);
    return seconds_of(work);
  }
  double read_to(char* target, std::int64_t step) {
    drop_from_cache(file_);
    return seconds_of([&] {
      RawFile file(file_, RawFile::Access::read);
      for (std::int64_t offset = 0; offset < bytes_; offset += step) file.read(target, step, offset);
    });
  }

  fs::path file_;
  std::int64_t bytes_;
  AlignedMemory memory_;
};

/// Seconds of one kind of transfer, turn by turn.
struct Turns {
  std::vector<double> checkpoint;
  std::vector<double> plain;
  std::vector<double> direct;

  TransferRates rates(std::int64_t bytes) const {
    std::vector<double> over_plain;
    std::vector<double> over_fastest;
    for (std::size_t i = 0; i < checkpoint.size(); ++i) {
      over_plain.push_back(plain[i] / checkpoint[i]);
      over_fastest.push_back(std::min(plain[i], direct[i]) / checkpoint[i]);
    }
    const auto size = static_cast<double>(bytes);
    return {size / median(checkpoint), size / median(plain), size / median(direct), median(over_plain),
            median(over_fastest)};
  }
};

TrainConfig config_of(const CheckpointBenchmarkOptions& options, const fs::path& folder) {
  TrainConfig config;
  config.model_name_or_path = folder / "model";
  config.init = Initialization::random;
  config.output_dir = folder / "run";
  config.resume_from_checkpoint = resume_automatically;
  config.zero_stage = options.zero_stage;
  config.device = DeviceChoice::cpu;
  return config;
}

class Bench {
 public:
  Bench(const CheckpointBenchmarkOptions& options, const MpiSession& session)
      : options_(options),
        folder_(options.folder / "skrull-bench-checkpoint"),
        config_(config_of(options, folder_)),
        rank_(config_, session),
        run_folder_(config_.output_dir) {}

  CheckpointBenchmark run(const Qwen2Config& model);

 private:
  void make_folders(const Qwen2Config& model);
  void fill_moments();
  /// Of rank 0, while the others wait.
  double on_root(const std::function<double()>& work);
  double together(const std::function<void()>& work);
  void save();
  void load();
  std::int64_t checkpoint_bytes() const;
  void drop_checkpoint_from_cache() const;

  CheckpointBenchmarkOptions options_;
  fs::path folder_;
  TrainConfig config_;
  RankSession rank_;
  RunFolder run_folder_;
  std::unique_ptr<ModelState> model_;
  TrainerState state_;
};

CheckpointBenchmark Bench::run(const Qwen2Config& model) {
  ControlChannel& control = rank_.control();
  control.run_together([&] { make_folders(model); });
  control.run_together([&] { model_ = std::make_unique<ModelState>(config_, rank_, true); });
  fill_moments();
  state_.step = first_step;
  state_.steps_per_epoch = 1;
  state_.ranks = control.size();
  state_.model = model_->config();
  state_.config = config_to_json(config_);
  save();
  CheckpointBenchmark result;
  result.ranks = control.size();
  result.bytes = checkpoint_bytes();
  PlainFile plain(folder_ / "plain", result.bytes);
  Turns writes;
  Turns reads;
  for (std::int64_t turn = 0; turn < options_.turns; ++turn) {
    ++state_.step;
    if (control.rank() == 0) fs::remove_all(run_folder_.checkpoint_folder(state_.step - 1));
    writes.checkpoint.push_back(together([&] { save(); }));
    drop_checkpoint_from_cache();
    reads.checkpoint.push_back(together([&] { load(); }));
    writes.plain.push_back(on_root([&] { return plain.write(); }));
    reads.plain.push_back(on_root([&] { return plain.read(); }));
    writes.direct.push_back(on_root([&] { return plain.write_direct(); }));
    reads.direct.push_back(on_root([&] { return plain.read_direct(); }));
    if (control.rank() == 0) plain.remove();
  }
  control.barrier();
  if (control.rank() == 0) fs::remove_all(folder_);
  result.write = writes.rates(result.bytes);
  result.read = reads.rates(result.bytes);
  return result;
}

void Bench::make_folders(const Qwen2Config& model) {
  if (rank_.control().rank() != 0) return;
  std::error_code problem;
  fs::remove_all(folder_, problem);
  for (const fs::path& folder : {config_.model_name_or_path, config_.output_dir}) {
    if (!problem) fs::create_directories(folder, problem);
  }
  if (problem) {
    throw_invalid_input("--folder: {} can't be made: {}; choose another one", folder_.string(), problem.message());
  }
  write_model_config(config_.model_name_or_path, model);
}

void Bench::fill_moments() {
  Device& device = rank_.device();
  for (int block = 0; block < model_->parameters().table().block_count(); ++block) {
    const OwnedState owned = model_->parameters().owned(block);
    for (const TensorView& moment : {owned.first_moment, owned.second_moment}) {
      device.ops().cast(device.compute_stream(), owned.parameter, moment);
    }
  }
  device.compute_stream().synchronize();
}

double Bench::on_root(const std::function<double()>& work) {
  double seconds = 0;
  rank_.control().run_on_root(
      [&] {
        seconds = work();
        return std::string();
      },
      [] { return false; }, [] {});
  return rank_.control().max(seconds);
}

double Bench::together(const std::function<void()>& work) {
  rank_.control().barrier();
  const double seconds = seconds_of(work);
  return rank_.control().max(seconds);
}

void Bench::save() {
  CheckpointSaver(config_, run_folder_, *model_, {}, rank_).save(state_, CheckpointSaver::Content::everything);
}

void Bench::load() {
  ControlChannel& control = rank_.control();
  StopRequest stop(control, config_.output_dir);
  ResumeSearch search(config_, run_folder_, control, stop);
  const Resume found = search.next();
  require(found.point.has_value(), "the checkpoint that was saved is not found");
  const bool is_sound = search.accept([&] {
    read_owned_state(found.point->folder, found.point->manifest, control.rank(), control.size(), model_->parameters(),
                     rank_.device());
  });
  require(is_sound, "the checkpoint that was saved is damaged");
  model_->parameters().restore(found.point->state.updates);
  rank_.device().compute_stream().synchronize();
  rank_.device().communication_stream().synchronize();
}

std::int64_t Bench::checkpoint_bytes() const {
  std::int64_t bytes = 0;
  for (const FileRecord& record : read_manifest(run_folder_.checkpoint_folder(state_.step)).files) {
    bytes += record.bytes();
  }
  return bytes;
}

void Bench::drop_checkpoint_from_cache() const {
  for (const auto& entry : fs::directory_iterator(run_folder_.checkpoint_folder(state_.step))) {
    drop_from_cache(entry.path());
  }
}

}  // namespace

CheckpointBenchmark bench_checkpoint(const Qwen2Config& model, const CheckpointBenchmarkOptions& options,
                                     const MpiSession& session) {
  return Bench(options, session).run(model);
}

}  // namespace skrull
