#pragma once
// How fast a checkpoint is written and read, beside plain writing and reading of as many bytes on the same disk.

#include <cstdint>
#include <filesystem>

#include "skrull/comm/mpi_session.h"
#include "skrull/model/qwen2_config.h"

namespace skrull {

struct CheckpointBenchmarkOptions {
  std::filesystem::path folder;  ///< on the disk to measure; what the benchmark makes there it removes
  std::int64_t zero_stage = 3;
  std::int64_t turns = 3;  ///< values are medians over them
};

/// Bytes per second. Plain: what `dd bs=16M` reaches, one process and one file.
struct TransferRates {
  double checkpoint = 0;
  double plain = 0;         ///< through the page cache; writing ends with fsync, reading begins with the cache dropped
  double direct = 0;        ///< past the page cache (dd's oflag=direct or iflag=direct), likewise
  double over_plain = 0;    ///< checkpoint / plain, the median of the turns
  double over_fastest = 0;  ///< checkpoint / the faster of the two in its turn, likewise
};

struct CheckpointBenchmark {
  int ranks = 1;
  std::int64_t bytes = 0;  ///< of all files of the checkpoint
  TransferRates write;     ///< from the start of the save to its name, everything on the disk
  TransferRates read;      ///< from looking for it to parameters and moments in place, every checksum compared
};

/// A model of random values, its moments too, saved in bfloat16 as the published ones are, so that masters are beside
/// it. Collective; the same result on every rank. Throws InvalidInput when the folder can't be made.
CheckpointBenchmark bench_checkpoint(const Qwen2Config& model, const CheckpointBenchmarkOptions& options,
                                     const MpiSession& session);

}  // namespace skrull
