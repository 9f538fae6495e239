#include "skrull/core/activity.h"

#include <mutex>

namespace skrull {
namespace {

struct Activity {
  std::mutex mutex;
  std::string text = "start-up";
};

Activity& current() {
  static Activity activity;
  return activity;
}

}  // namespace

void set_activity(const std::string& text) {
  const std::lock_guard lock(current().mutex);
  current().text = text;
}

std::string activity() {
  const std::lock_guard lock(current().mutex);
  return current().text;
}

}  // namespace skrull
