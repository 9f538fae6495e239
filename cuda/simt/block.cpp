#include "simt/block.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

namespace skrull::simt {

constinit thread_local Thread* current_thread = nullptr;
constinit thread_local Block* current_block = nullptr;

namespace {

std::size_t count(dim3 size) {
  return std::size_t{size.x} * size.y * size.z;
}

std::string text(const uint3& index) {
  return fmt::format("({}, {}, {})", index.x, index.y, index.z);
}

/// Literals are mostly one and the same.
bool is_same(const char* a, const char* b) {
  return a == b || std::strcmp(a, b) == 0;
}

/// Stacks are kept for the next launch of this thread. The thread sanitizer would take the next owner of a stack for a
/// racing one: there every block has new ones.
std::shared_ptr<StackSlab> stacks_for(std::size_t threads) {
  if constexpr (thread_sanitizer) return std::make_shared<StackSlab>(threads);
  thread_local std::shared_ptr<StackSlab> kept;
  if (!kept || kept->count() < threads) {
    kept.reset();
    kept = std::make_shared<StackSlab>(threads);
  }
  return kept;
}

}  // namespace

bool CallSite::operator==(const CallSite& other) const {
  return where.line == other.where.line && where.column == other.where.column && is_same(operation, other.operation) &&
         is_same(where.file, other.where.file);
}

std::string CallSite::text() const {
  return fmt::format("{} at {}:{}", operation, where.file, where.line);
}

void fail(const std::string& message) {
  if (current_thread == nullptr) throw Error(message);
  throw Error(
      fmt::format("{}; block {}, thread {}", message, text(current_block->index()), text(current_thread->index)));
}

void fail_at(const CallSite& site, const std::string& message) {
  fail(fmt::format("{}: {}", site.text(), message));
}

Block::Block(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& kernel)
    : grid_(grid),
      size_(block),
      kernel_(kernel),
      seeded_(options().seed != 0),
      random_state_(options().seed * 0x9E3779B97F4A7C15u + 1),
      threads_(count(block)),
      warps_((count(block) + warp_size - 1) / warp_size),
      shared_memory_(dynamic_shared_bytes) {
  scheduler_.adopt();
  ready_.reserve(threads_.size());
  if constexpr (!thread_sanitizer) stacks_ = stacks_for(threads_.size());
}

Block::~Block() = default;

void Block::run(uint3 index) {
  const RuntimeScope scope;
  index_ = index;
  shared_memory_.renew();
  if constexpr (thread_sanitizer) stacks_ = stacks_for(threads_.size());
  start_threads();

  Block* const outer = std::exchange(current_block, this);
  current_thread = take_ready();
  Fiber::switch_between(scheduler_, current_thread->fiber);
  current_thread = nullptr;
  current_block = outer;

  for (Thread& thread : threads_) {
    if (thread.state == Thread::State::done) {
      thread.fiber.destroy();
    } else {
      thread.fiber.abandon(scheduler_, &kernel_);  // what it holds on its stack is lost
    }
  }
  if (!error_ && running_ == 0) return;
  acquire(&kernel_);
  throw Error(error_ ? *error_ : deadlock_report());
}

void Block::start_threads() {
  running_ = threads_.size();
  at_barrier_ = 0;
  ready_.clear();
  for (std::size_t i = threads_.size(); i-- > 0;) {
    Thread& thread = threads_[i];
    const auto rank = static_cast<unsigned>(i);
    thread.rank = static_cast<int>(i);
    thread.index = {rank % size_.x, rank / size_.x % size_.y, rank / (size_.x * size_.y)};
    thread.fiber.start((*stacks_)[i], &Block::thread_entry);
    make_ready(thread);
  }
}

void Block::thread_entry() {
  current_thread->fiber.entered();
  Block& block = *current_block;
  try {
    block.kernel_();
    const RuntimeScope scope;
    if (!current_thread->copies.empty()) fail("a thread ended with cp.async copies that it did not wait for");
    if (block.at_barrier_ != 0) fail_at(block.barrier_site_, "a thread ended while others wait there");
  } catch (const std::exception& error) {
    const RuntimeScope scope;
    block.error_ = error.what();
  }
  release(&block.kernel_);
  block.finish_thread();
}

void Block::finish_thread() {
  Thread* const thread = current_thread;
  Fiber* next = &scheduler_;
  {
    const RuntimeScope scope;
    thread->state = Thread::State::done;
    --running_;
    if (!error_) {
      current_thread = take_ready();
      if (current_thread != nullptr) next = &current_thread->fiber;
    }
  }
  Fiber::leave_to(thread->fiber, *next);
}

void Block::make_ready(Thread& thread) {
  thread.state = Thread::State::ready;
  ready_.push_back(&thread);
}

Thread* Block::take_ready() {
  if (ready_.empty()) return nullptr;
  if (seeded_) std::swap(ready_[draw(ready_.size())], ready_.back());
  Thread* const thread = ready_.back();
  ready_.pop_back();
  return thread;
}

std::uint64_t Block::draw(std::uint64_t bound) {
  random_state_ = random_state_ * 6364136223846793005u + 1442695040888963407u;
  return (random_state_ >> 33) % bound;
}

void Block::switch_to_next() {
  Thread* const self = current_thread;
  Thread* const next = take_ready();
  if (next == self) return;
  current_thread = next;
  Fiber::switch_between(self->fiber, next != nullptr ? next->fiber : scheduler_);
}

void Block::barrier(const CallSite& site) {
  release(&at_barrier_);
  {
    const RuntimeScope scope;
    if (running_ != threads_.size()) {
      fail_at(site, fmt::format("{} threads of the block have ended already", threads_.size() - running_));
    }
    if (at_barrier_ == 0) {
      barrier_site_ = site;
    } else if (!(barrier_site_ == site)) {
      fail_at(site, fmt::format("other threads wait at {}", barrier_site_.text()));
    }
    Thread& self = *current_thread;
    self.site = site;
    self.state = Thread::State::at_barrier;
    ++at_barrier_;
    if (at_barrier_ == running_) release_barrier();
    switch_to_next();
  }
  acquire(&at_barrier_);
}

void Block::release_barrier() {
  for (std::size_t i = threads_.size(); i-- > 0;) make_ready(threads_[i]);
  at_barrier_ = 0;
}

void Block::warp_collective(std::uint32_t mask, void* lane_data, void (*combine)(const Lanes&), const CallSite& site) {
  const RuntimeScope scope;
  Thread& self = *current_thread;
  Warp& warp = warps_[static_cast<std::size_t>(self.warp())];
  const std::size_t first = static_cast<std::size_t>(self.warp()) * warp_size;
  const std::size_t width = std::min<std::size_t>(threads_.size() - first, warp_size);
  if (width < warp_size) mask &= (1u << width) - 1;
  if ((mask >> self.lane() & 1) == 0) fail_at(site, fmt::format("mask {:08x} lacks the calling lane", mask));
  if (warp.arrived == 0) {
    warp.lanes.mask = mask;
    warp.site = site;
  } else if (warp.lanes.mask != mask || !(warp.site == site)) {
    fail_at(site, fmt::format("with mask {:08x}, while other lanes of the warp wait in {} with mask {:08x}", mask,
                              warp.site.text(), warp.lanes.mask));
  }
  warp.lanes.lanes[self.lane()] = lane_data;
  warp.arrived |= 1u << self.lane();
  self.site = site;
  self.state = Thread::State::in_warp;
  if (warp.arrived == mask) {
    combine(warp.lanes);
    warp.arrived = 0;
    for (std::size_t lane = width; lane-- > 0;) {
      if (warp.lanes.has(static_cast<int>(lane))) make_ready(threads_[first + lane]);
    }
  }
  switch_to_next();
}

std::string Block::deadlock_report() const {
  std::map<std::string, std::vector<int>> waiting;
  for (const Thread& thread : threads_) {
    if (thread.state != Thread::State::done) waiting[thread.site.text()].push_back(thread.rank);
  }
  std::string report = fmt::format("deadlock in block {}: {} of {} threads have ended, and none can go on",
                                   text(index_), threads_.size() - running_, threads_.size());
  constexpr std::size_t shown = 8;
  for (const auto& [site, ranks] : waiting) {
    const auto end = ranks.begin() + static_cast<std::ptrdiff_t>(std::min(shown, ranks.size()));
    report.append(fmt::format("; {} wait in {} (threads {}{})", ranks.size(), site, fmt::join(ranks.begin(), end, ", "),
                              ranks.size() > shown ? ", ..." : ""));
  }
  return report;
}

}  // namespace skrull::simt
