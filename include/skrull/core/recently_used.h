#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace skrull {

/// The values that were asked for last, at most `capacity` of them. Keys are ordered by <.
template <class Key, class Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t capacity) : capacity_(capacity) {}

  /// The value of `key`, by make() where it is not there yet (then the one unused for longest may go). Valid until the
  /// next call.
  template <class Make>
  Value& get(const Key& key, const Make& make) {
    if (const auto found = entries_.find(key); found != entries_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.value;
    }
    Value value = make();
    if (entries_.size() >= capacity_) {
      entries_.erase(uses_.back());
      uses_.pop_back();
    }
    uses_.push_front(key);
    return entries_.emplace(key, Entry{std::move(value), uses_.begin()}).first->second.value;
  }

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Value value;
    typename std::list<Key>::iterator use;
  };

  std::size_t capacity_;
  std::list<Key> uses_;  ///< most recent first
  std::map<Key, Entry> entries_;
};

}  // namespace skrull
