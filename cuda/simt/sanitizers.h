#pragma once
// Which sanitizer this build runs under, and what fibers tell it. Without one, everything here is empty.
// SKRULL_SIMT_TSAN comes from CMake: the compiler does not tell it in sources that are themselves left out.

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SKRULL_SIMT_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SKRULL_SIMT_ASAN 1
#endif

#ifdef SKRULL_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SKRULL_SIMT_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace skrull::simt {

#ifdef SKRULL_SIMT_ASAN
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif
#ifdef SKRULL_SIMT_TSAN
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif

/// The scheduler's own memory is shared by all fibers on purpose: the thread sanitizer looks away while one of these
/// lives.
class RuntimeScope {
 public:
#ifdef SKRULL_SIMT_TSAN
  RuntimeScope() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~RuntimeScope() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  RuntimeScope() {}
  ~RuntimeScope() {}
#endif
  RuntimeScope(const RuntimeScope&) = delete;
  RuntimeScope& operator=(const RuntimeScope&) = delete;
};

/// What this fiber did so far happened before what follows a later acquire() of the same address.
inline void release([[maybe_unused]] const void* address) {
#ifdef SKRULL_SIMT_TSAN
  __tsan_release(const_cast<void*>(address));
#endif
}
inline void acquire([[maybe_unused]] const void* address) {
#ifdef SKRULL_SIMT_TSAN
  __tsan_acquire(const_cast<void*>(address));
#endif
}

/// What the sanitizers keep of a fiber.
struct FiberState {
  void* fake_stack = nullptr;    ///< address sanitizer
  void* thread_state = nullptr;  ///< thread sanitizer; owned, of fibers that were created
};

/// For a fiber that is about to start on a stack on which another one ran.
inline void create_fiber([[maybe_unused]] FiberState& state, [[maybe_unused]] void* stack,
                         [[maybe_unused]] std::size_t bytes) {
#ifdef SKRULL_SIMT_ASAN
  __asan_unpoison_memory_region(stack, bytes);
#endif
#ifdef SKRULL_SIMT_TSAN
  state.thread_state = __tsan_create_fiber(0);
#endif
}

/// For the fiber that a thread is already.
inline void adopt_fiber([[maybe_unused]] FiberState& state) {
#ifdef SKRULL_SIMT_TSAN
  state.thread_state = __tsan_get_current_fiber();
#endif
}

inline void destroy_fiber([[maybe_unused]] FiberState& state) {
#ifdef SKRULL_SIMT_TSAN
  __tsan_destroy_fiber(state.thread_state);
#endif
}

/// release() in the name of a fiber that will not run again; `now` is the one that runs.
inline void release_for([[maybe_unused]] const FiberState& abandoned, [[maybe_unused]] const FiberState& now,
                        [[maybe_unused]] const void* address) {
#ifdef SKRULL_SIMT_TSAN
  __tsan_switch_to_fiber(abandoned.thread_state, __tsan_switch_to_fiber_no_sync);
  __tsan_release(const_cast<void*>(address));
  __tsan_switch_to_fiber(now.thread_state, __tsan_switch_to_fiber_no_sync);
#endif
}

/// Immediately before a switch. `from` is nullptr when the fiber that is left never runs again.
inline void before_switch([[maybe_unused]] FiberState* from, [[maybe_unused]] const FiberState& to,
                          [[maybe_unused]] const void* stack, [[maybe_unused]] std::size_t bytes) {
#ifdef SKRULL_SIMT_ASAN
  __sanitizer_start_switch_fiber(from ? &from->fake_stack : nullptr, stack, bytes);
#endif
#ifdef SKRULL_SIMT_TSAN
  __tsan_switch_to_fiber(to.thread_state, __tsan_switch_to_fiber_no_sync);
#endif
}

/// The first thing after a switch, in the fiber that runs now.
inline void after_switch([[maybe_unused]] FiberState& now) {
#ifdef SKRULL_SIMT_ASAN
  __sanitizer_finish_switch_fiber(now.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace skrull::simt
