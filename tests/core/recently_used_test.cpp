#include "skrull/core/recently_used.h"

#include <string>

#include "support/catch.h"

using namespace skrull;

TEST_CASE("values are made once and kept while they are used") {
  RecentlyUsed<int, std::string> values(3);
  int made = 0;
  const auto get = [&](int key) {
    return values.get(key, [&] {
      ++made;
      return "value " + std::to_string(key);
    });
  };
  for (const int key : {1, 2, 3, 1, 2, 3}) CHECK(get(key) == "value " + std::to_string(key));
  CHECK(made == 3);
  get(1);
  get(4);  // 2 was unused for longest
  CHECK(values.size() == 3);
  CHECK(made == 4);
  for (const int key : {1, 3, 4}) get(key);
  CHECK(made == 4);
  get(2);
  CHECK(made == 5);
}

TEST_CASE("a value that can't be made leaves the others as they are") {
  RecentlyUsed<int, int> values(1);
  values.get(1, [] { return 10; });
  CHECK_THROWS(values.get(2, []() -> int { throw std::runtime_error("no"); }));
  CHECK(values.get(1, [] { return 11; }) == 10);
  CHECK(values.get(2, [] { return 20; }) == 20);
}
