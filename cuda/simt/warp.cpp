#include "simt/warp.h"

#include <spdlog/fmt/fmt.h>

#include <bit>
#include <cstring>

#include "simt/block.h"

namespace skrull::simt {
namespace {

constexpr std::size_t max_value_bytes = 16;

struct ShuffleLane {
  Shuffle kind;
  int operand;
  int width;
  std::size_t bytes;
  std::byte sent[max_value_bytes];
  std::byte received[max_value_bytes];
};

/// The lane that `lane` reads from; itself where that would lie outside its segment.
int source_lane(const ShuffleLane& shuffle, int lane) {
  const int segment = lane / shuffle.width * shuffle.width;
  const int end = segment + shuffle.width;
  switch (shuffle.kind) {
    case Shuffle::index:
      return segment + (shuffle.operand & (shuffle.width - 1));
    case Shuffle::up:
      return lane - shuffle.operand >= segment ? lane - shuffle.operand : lane;
    case Shuffle::down:
      return lane + shuffle.operand < end ? lane + shuffle.operand : lane;
    case Shuffle::exclusive_or: {
      // As the hardware: a lower segment may be read, a higher one not.
      const int source = lane ^ shuffle.operand;
      return source < end ? source : lane;
    }
  }
  return lane;
}

void exchange(const Lanes& lanes) {
  for (int lane = 0; lane < warp_size; ++lane) {
    if (!lanes.has(lane)) continue;
    auto& receiver = lanes.at<ShuffleLane>(lane);
    const int source = source_lane(receiver, lane);
    if (!lanes.has(source)) {
      fail(fmt::format("lane {} shuffles from lane {}, which is not in mask {:08x}", lane, source, lanes.mask));
    }
    std::memcpy(receiver.received, lanes.at<ShuffleLane>(source).sent, receiver.bytes);
  }
}

struct BallotLane {
  bool predicate;
  std::uint32_t result;
};

void vote(const Lanes& lanes) {
  std::uint32_t result = 0;
  for (int lane = 0; lane < warp_size; ++lane) {
    if (lanes.has(lane) && lanes.at<BallotLane>(lane).predicate) result |= 1u << lane;
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    if (lanes.has(lane)) lanes.at<BallotLane>(lane).result = result;
  }
}

void require_full_warp(const Lanes& lanes, const char* instruction) {
  if (lanes.mask != full_warp) fail(fmt::format("{} needs all 32 lanes, has mask {:08x}", instruction, lanes.mask));
}

float low_half(std::uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
float high_half(std::uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}

struct MmaLane {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

void multiply(const Lanes& lanes) {
  require_full_warp(lanes, "mma");
  float a[16][16];
  float b[8][16];  // transposed: column n of B is row n
  for (int lane = 0; lane < warp_size; ++lane) {
    const auto& from = lanes.at<MmaLane>(lane);
    const int group = lane / 4;
    const int column = lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      const auto value = [half](std::uint32_t pair) { return half == 0 ? low_half(pair) : high_half(pair); };
      a[group][column + half] = value(from.a[0]);
      a[group + 8][column + half] = value(from.a[1]);
      a[group][column + 8 + half] = value(from.a[2]);
      a[group + 8][column + 8 + half] = value(from.a[3]);
      b[group][column + half] = value(from.b[0]);
      b[group][column + 8 + half] = value(from.b[1]);
    }
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    float* const d = lanes.at<MmaLane>(lane).d;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int column = lane % 4 * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[column][k];
      d[i] += sum;
    }
  }
}

struct MatrixLane {
  bool transposed;
  const std::uint16_t* row;
  std::uint32_t* result;
};

void distribute(const Lanes& lanes) {
  require_full_warp(lanes, "ldmatrix");
  for (int lane = 0; lane < warp_size; ++lane) {
    const auto& to = lanes.at<MatrixLane>(lane);
    const int row = lane / 4;
    const int column = lane % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](int r, int c) -> std::uint32_t { return lanes.at<MatrixLane>(matrix * 8 + r).row[c]; };
      const std::uint32_t low = to.transposed ? element(column, row) : element(row, column);
      const std::uint32_t high = to.transposed ? element(column + 1, row) : element(row, column + 1);
      to.result[matrix] = low | high << 16;
    }
  }
}

const char* name_of(Shuffle kind) {
  switch (kind) {
    case Shuffle::index:
      return "__shfl_sync";
    case Shuffle::up:
      return "__shfl_up_sync";
    case Shuffle::down:
      return "__shfl_down_sync";
    case Shuffle::exclusive_or:
      return "__shfl_xor_sync";
  }
  return "a shuffle";
}

}  // namespace

void shuffle(Shuffle kind, std::uint32_t mask, void* value, std::size_t bytes, int operand, int width,
             CallPosition where) {
  const RuntimeScope scope;
  const CallSite site{name_of(kind), where};
  if (width < 1 || width > warp_size || (width & (width - 1)) != 0) {
    fail_at(site, fmt::format("width {} is not a power of two up to 32", width));
  }
  if (bytes > max_value_bytes) fail_at(site, fmt::format("values of {} bytes", bytes));
  ShuffleLane lane{kind, operand, width, bytes, {}, {}};
  std::memcpy(lane.sent, value, bytes);
  current_block->warp_collective(mask, &lane, exchange, site);
  std::memcpy(value, lane.received, bytes);
}

std::uint32_t ballot(std::uint32_t mask, bool predicate, CallPosition where) {
  const RuntimeScope scope;
  BallotLane lane{predicate, 0};
  current_block->warp_collective(mask, &lane, vote, {"a vote", where});
  return lane.result;
}

void synchronize_warp(std::uint32_t mask, CallPosition where) {
  const void* const order = current_block->warp_order(current_thread->warp());
  release(order);
  {
    const RuntimeScope scope;
    current_block->warp_collective(mask, nullptr, [](const Lanes&) {}, {"__syncwarp", where});
  }
  acquire(order);
}

void synchronize_block(CallPosition where) {
  current_block->barrier({"__syncthreads", where});
}

void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], CallPosition where) {
  const RuntimeScope scope;
  MmaLane lane{d, a, b};
  current_block->warp_collective(full_warp, &lane, multiply, {"mma", where});
}

void load_matrices(bool transposed, std::uint32_t (&result)[4], const std::uint16_t (&row)[8], CallPosition where) {
  const RuntimeScope scope;
  MatrixLane lane{transposed, row, result};
  current_block->warp_collective(full_warp, &lane, distribute, {transposed ? "ldmatrix.trans" : "ldmatrix", where});
}

}  // namespace skrull::simt
