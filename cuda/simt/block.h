#pragma once
// One thread block: its threads, who may run, where the others wait, and its shared memory.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/call_position.h"
#include "simt/async_copy.h"
#include "simt/fiber.h"
#include "simt/shared_memory.h"
#include "simt/simt.h"

namespace skrull::simt {

inline constexpr int warp_size = 32;
inline constexpr std::uint32_t full_warp = 0xffffffffu;

/// An operation in which threads meet, for checks and reports.
struct CallSite {
  const char* operation = "nothing";
  CallPosition where;

  bool operator==(const CallSite& other) const;
  std::string text() const;
};

struct Thread {
  enum class State { ready, at_barrier, in_warp, done };

  Fiber fiber;
  uint3 index{};
  int rank = 0;  ///< in the block
  State state = State::ready;
  CallSite site;  ///< where it waits
  AsyncCopies copies;

  int lane() const { return rank % warp_size; }
  int warp() const { return rank / warp_size; }
};

/// What the lanes of a warp bring to a collective: `lanes[i]` is lane i's, where bit i of `mask` is set.
struct Lanes {
  std::uint32_t mask = 0;
  void* lanes[warp_size] = {};

  bool has(int lane) const { return (mask >> lane & 1) != 0; }
  template <class T>
  T& at(int lane) const {
    return *static_cast<T*>(lanes[lane]);
  }
};

class Block {
 public:
  Block(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& kernel);
  ~Block();

  /// Runs the block with this index to its end; throws the first Error of a thread, or a deadlock. Not usable after an
  /// error.
  void run(uint3 index);

  const dim3& grid_size() const { return grid_; }
  const dim3& size() const { return size_; }
  const uint3& index() const { return index_; }
  SharedMemory& shared_memory() { return shared_memory_; }

  /// Called by threads: waits until all threads of the block are here.
  void barrier(const CallSite& site);
  /// Called by threads: waits until all lanes of `mask` are here; then `combine` runs once, for all of them.
  void warp_collective(std::uint32_t mask, void* lane_data, void (*combine)(const Lanes&), const CallSite& site);
  /// An address for the thread sanitizer: what __syncwarp orders.
  void* warp_order(int warp) { return &warps_[static_cast<std::size_t>(warp)]; }

 private:
  struct Warp {
    Lanes lanes;
    std::uint32_t arrived = 0;
    CallSite site;
  };

  static void thread_entry();
  void start_threads();
  void make_ready(Thread& thread);
  Thread* take_ready();
  void switch_to_next();
  [[noreturn]] void finish_thread();
  void release_barrier();
  std::uint64_t draw(std::uint64_t bound);
  std::string deadlock_report() const;

  dim3 grid_;
  dim3 size_;
  const std::function<void()>& kernel_;
  bool seeded_;
  std::uint64_t random_state_;

  uint3 index_{};
  Fiber scheduler_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Thread*> ready_;
  std::size_t at_barrier_ = 0;
  std::size_t running_ = 0;  ///< threads that are not done
  CallSite barrier_site_;
  std::optional<std::string> error_;
  std::shared_ptr<StackSlab> stacks_;
  SharedMemory shared_memory_;
};

/// The thread and block that run now; nullptr outside kernels. Plain pointers, for kernels read them all the time.
extern constinit thread_local Thread* current_thread;
extern constinit thread_local Block* current_block;

/// Throws Error with the position of the running thread.
[[noreturn]] void fail(const std::string& message);
/// The same in a collective.
[[noreturn]] void fail_at(const CallSite& site, const std::string& message);

}  // namespace skrull::simt
