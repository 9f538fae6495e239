#pragma once
// Which kernels of a test program its tests have run.

#include <string>
#include <vector>

namespace skrull::test {

/// The kernels in this program, each instance of a template by itself, that nothing has launched so far. Needs `nm`,
/// which comes with the linker.
std::vector<std::string> kernels_not_launched();

}  // namespace skrull::test
