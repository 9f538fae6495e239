#include "skrull/train/stop_request.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <system_error>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr int stop_signals[] = {SIGTERM, SIGUSR1};
constexpr std::int64_t same_request_ns = 250'000'000;
constexpr std::chrono::milliseconds look_interval{100};

std::atomic<int> received_signal{0};
std::atomic<std::int64_t> received_at{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "a signal handler must not wait for a lock");

// Nothing here but what a signal handler may do (man 7 signal-safety).
void on_stop_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t at = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  int none = 0;
  if (received_signal.compare_exchange_strong(none, signal)) {
    received_at = at;
  } else if (at - received_at > same_request_ns) {
    ::_exit(128 + signal);
  }
}

const char* name_of_signal(int signal) {
  return signal == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : stop_signals) ::sigaction(signal, &action, nullptr);
}

StopRequest::StopRequest(ControlChannel& control, const std::filesystem::path& output_dir)
    : control_(control), file_(output_dir / stop_file_name) {}

bool StopRequest::wanted_here() {
  if (received_signal != 0 || file_seen_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (control_.rank() != 0 || now - last_look_ < look_interval) return false;
  last_look_ = now;
  std::error_code ignored;
  file_seen_ = std::filesystem::exists(file_, ignored);
  return file_seen_;
}

bool StopRequest::agreed() {
  if (!agreed_) agreed_ = control_.max(std::int64_t{wanted_here()}) != 0;
  return agreed_;
}

void StopRequest::throw_if_asked() {
  control_.agree_or_throw(wanted_here() ? "asked to stop" : "", static_cast<int>(ExitCode::stopped_by_signal));
}

std::string StopRequest::wish() const {
  const int signal = received_signal;
  if (signal != 0) return fmt::format("{} to rank {}", name_of_signal(signal), control_.rank());
  return file_seen_ ? fmt::format("the file {}", file_.string()) : "";
}

std::string StopRequest::reason() {
  std::string all;
  for (const std::string& wish : control_.gather(wish())) {
    if (!wish.empty()) all += (all.empty() ? "" : ", ") + wish;
  }
  return all;
}

void StopRequest::remove_file() const {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

}  // namespace skrull
