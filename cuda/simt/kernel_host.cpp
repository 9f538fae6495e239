#include "simt/kernel_host.h"

#include <string>

namespace skrull::simt {

void add_async_copy(void* shared, const void* global, CallPosition where) {
  const RuntimeScope scope;
  const CallSite site{"cp.async", where};
  if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0) fail_at(site, "the target is not aligned to 16 bytes");
  if (reinterpret_cast<std::uintptr_t>(global) % 16 != 0) fail_at(site, "the source is not aligned to 16 bytes");
  current_thread->copies.add({shared, global});
}

void commit_async_copies() {
  const RuntimeScope scope;
  current_thread->copies.commit();
}

bool take_async_copies(std::size_t allowed, AsyncCopies::Group& group) {
  const RuntimeScope scope;
  return current_thread->copies.take(allowed, group);
}

}  // namespace skrull::simt
