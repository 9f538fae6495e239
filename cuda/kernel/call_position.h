#pragma once
// Where a call stands in the source: std::source_location for compilers that lack it (clang 14 with GCC's library).

namespace skrull {

struct CallPosition {
  const char* file = "";
  unsigned line = 0;
  unsigned column = 0;  ///< 0 where the compiler does not tell

  /// As the default of a parameter: the caller's position.
#if defined(__has_builtin) && __has_builtin(__builtin_COLUMN)
  static constexpr CallPosition current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                        unsigned column = __builtin_COLUMN()) {
    return {file, line, column};
  }
#else
  static constexpr CallPosition current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line, 0};
  }
#endif
};

}  // namespace skrull
