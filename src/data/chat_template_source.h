#pragma once
// Finds a model folder's chat template and tells whether it is one that this program renders.

#include <filesystem>
#include <string>

namespace skrull {

/// The default system text of the folder's template; see ChatTemplate::load.
std::string read_default_system(const std::filesystem::path& folder);

}  // namespace skrull
