#pragma once
// cp.async of one thread. The target holds NaN from the call on, and the copy is made as late as is allowed: by the
// wait for its group. So a wait that is missing or too lax shows.

#include <cstddef>
#include <deque>
#include <vector>

namespace skrull::simt {

class AsyncCopies {
 public:
  struct Copy {
    void* target;
    const void* source;  ///< nullptr: zeros
  };
  using Group = std::vector<Copy>;

  void add(Copy copy) { open_.push_back(copy); }
  void commit();
  /// Takes the oldest group out while more than `allowed` are there.
  bool take(std::size_t allowed, Group& group);
  bool empty() const { return open_.empty() && groups_.empty(); }
  void clear();

 private:
  Group open_;
  std::deque<Group> groups_;
};

}  // namespace skrull::simt
