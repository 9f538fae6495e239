#include "simt/async_copy.h"

#include <utility>

namespace skrull::simt {

void AsyncCopies::commit() {
  groups_.push_back(std::exchange(open_, {}));
}

bool AsyncCopies::take(std::size_t allowed, Group& group) {
  if (groups_.size() <= allowed) return false;
  group = std::move(groups_.front());
  groups_.pop_front();
  return true;
}

void AsyncCopies::clear() {
  open_.clear();
  groups_.clear();
}

}  // namespace skrull::simt
