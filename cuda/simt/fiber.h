#pragma once
// Fibers: control flows of one operating-system thread, each on a stack of its own, that switch where they say so.

#include <cstddef>

#include "simt/sanitizers.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace skrull::simt {

struct Stack {
  void* bottom = nullptr;
  std::size_t bytes = 0;
};

/// Stacks for fibers, with a page below each that must not be touched: an overflow is a crash and not a riddle.
class StackSlab {
 public:
  explicit StackSlab(std::size_t count);
  ~StackSlab();
  StackSlab(const StackSlab&) = delete;
  StackSlab& operator=(const StackSlab&) = delete;

  std::size_t count() const { return count_; }
  Stack operator[](std::size_t i) const;

 private:
  std::size_t count_;
  std::byte* memory_;
};

class Fiber {
 public:
  /// Makes this the fiber that the calling thread is.
  void adopt();
  /// The next switch to this fiber calls `entry`, which must not return.
  void start(Stack stack, void (*entry)());
  /// To be called first by `entry`.
  void entered() { after_switch(state_); }
  /// After a fiber's last switch.
  void destroy() { destroy_fiber(state_); }
  /// For a fiber that will not run again though it did not end; `now` runs. What it did happened before what follows an
  /// acquire() of `address`. Not to be destroyed.
  void abandon(const Fiber& now, const void* address) const { release_for(state_, now.state_, address); }

  /// Leaves the running fiber `from`, until something switches to it again.
  static void switch_between(Fiber& from, Fiber& to);
  /// Leaves the running fiber for ever.
  [[noreturn]] static void leave_to(Fiber& from, Fiber& to);

 private:
#if defined(__x86_64__)
  using Context = void*;  ///< the stack pointer; everything else is on the stack
#else
  using Context = ucontext_t;
#endif
  static void switch_context(Context& from, Context& to);

  Context context_{};
  Stack stack_;
  FiberState state_;
};

}  // namespace skrull::simt
