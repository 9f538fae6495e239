#pragma once
// Rows of text and conversations by a model folder's tokenizer and chat template.

#include <filesystem>
#include <memory>

#include "skrull/data/sample.h"

namespace skrull {

/// The encoder of a model or tokenizer folder, or null when it holds no tokenizer (rows of input_ids need none). A
/// folder whose chat template is not known still encodes documents; conversations then throw InvalidInput. Throws
/// InvalidInput for a broken tokenizer.
std::unique_ptr<TextEncoder> load_chat_encoder(const std::filesystem::path& folder);

}  // namespace skrull
