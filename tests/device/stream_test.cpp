#include "skrull/device/stream.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "host_stream.h"
#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

namespace {

/// Holds a task of a stream until the test lets it go.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace

TEST_CASE("an inline stream has done its work when enqueue returns") {
  InlineStream stream;
  int value = 0;
  stream.enqueue([&] { value = 5; });
  CHECK(value == 5);
  CHECK(stream.record().reached());
  CHECK_THROWS_AS(stream.enqueue([] { throw RunFailure("bad"); }), RunFailure);
}

TEST_CASE("an event that was never recorded counts as reached") {
  const Event event;
  CHECK(event.reached());
  event.synchronize();
  QueueStream stream;
  stream.wait(event);
  stream.synchronize();
}

TEST_CASE("a queue stream runs tasks in order, in another thread") {
  QueueStream stream;
  std::vector<int> order;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) stream.enqueue([&, i] { order.push_back(i); });
  stream.enqueue([&] { thread = std::this_thread::get_id(); });
  stream.synchronize();
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(thread != std::this_thread::get_id());
}

TEST_CASE("enqueue and record return before the work is done; an event covers what was queued before it") {
  QueueStream stream;
  Gate first;
  Gate second;
  int done = 0;
  stream.enqueue([&] {
    first.pass();
    done = 1;
  });
  const Event after_first = stream.record();
  stream.enqueue([&] {
    second.pass();
    done = 2;
  });
  const Event after_second = stream.record();
  CHECK_FALSE(after_first.reached());
  first.open();
  after_first.synchronize();
  CHECK(after_first.reached());
  CHECK_FALSE(after_second.reached());
  second.open();
  after_second.synchronize();
  CHECK(done == 2);
}

TEST_CASE("a stream starts after the event of another stream") {
  QueueStream producer;
  QueueStream consumer;
  Gate gate;
  int value = 0;
  int seen = -1;
  producer.enqueue([&] {
    gate.pass();
    value = 42;
  });
  consumer.wait(producer.record());
  consumer.enqueue([&] { seen = value; });
  const Event consumed = consumer.record();
  CHECK_FALSE(consumed.reached());
  gate.open();
  InlineStream compute;
  compute.wait(consumed);
  CHECK(seen == 42);
}

TEST_CASE("data passes between two streams by events alone, back and forth") {
  QueueStream communication;
  InlineStream compute;
  std::vector<int> buffer(2);
  std::int64_t sum = 0;
  Event sent;
  for (int round = 0; round < 500; ++round) {
    communication.wait(compute.record());
    communication.enqueue([&buffer, round] { buffer[static_cast<std::size_t>(round % 2)] = round; });
    sent = communication.record();
    compute.wait(sent);
    compute.enqueue([&, round] { sum += buffer[static_cast<std::size_t>(round % 2)]; });
  }
  CHECK(sum == 500 * 499 / 2);
}

TEST_CASE("many threads may queue on one stream") {
  QueueStream stream;
  std::int64_t count = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) stream.enqueue([&] { ++count; });
      stream.record().synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream.synchronize();
  CHECK(count == 800);
}

TEST_CASE("the first error stops a stream: later tasks are dropped, every later wait rethrows it") {
  QueueStream stream;
  QueueStream follower;
  int done = 0;
  stream.enqueue([&] { done = 1; });
  const Event before = stream.record();
  before.synchronize();
  stream.enqueue([] { throw RunFailure("the link is down"); });
  stream.enqueue([&] { done = 2; });
  const Event after = stream.record();
  follower.wait(after);
  follower.enqueue([&] { done = 3; });

  CHECK_THROWS_WITH(after.synchronize(), "the link is down");
  CHECK_THROWS_WITH(stream.synchronize(), "the link is down");
  CHECK_THROWS_WITH(follower.synchronize(), "the link is down");
  stream.enqueue([&] { done = 4; });
  CHECK_THROWS_WITH(stream.record().synchronize(), "the link is down");
  InlineStream compute;
  CHECK_THROWS_WITH(compute.wait(after), "the link is down");
  CHECK(done == 1);
  CHECK(after.reached());  // nothing is to be waited for any more
  before.synchronize();    // what was done stays done
}

TEST_CASE("closing a stream waits for the running task and drops the rest") {
  Gate started;
  Gate gate;
  std::atomic<int> done = 0;
  Event event;
  {
    std::optional<QueueStream> stream(std::in_place);
    stream->enqueue([&] {
      started.open();
      gate.pass();
      done = 1;
    });
    stream->enqueue([&] { done = 2; });
    event = stream->record();
    started.pass();
    std::thread closer([&] { stream.reset(); });
    CHECK_THROWS_WITH(event.synchronize(), "the stream was closed before its work was done");
    gate.open();
    closer.join();
  }
  CHECK(done == 1);
}

TEST_CASE("what a task holds is released when it is done") {
  QueueStream stream;
  auto held = std::make_shared<int>(1);
  stream.enqueue([held] { (void)held; });
  stream.synchronize();
  CHECK(held.use_count() == 1);
}
