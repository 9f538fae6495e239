#include "device/cuda_scratch.h"

#include <utility>

#include "skrull/core/error.h"
#include "skrull/core/text.h"

namespace skrull {

DeviceScratch::DeviceScratch(Device& device, std::string category, std::int64_t piece_bytes)
    : device_(device), category_(std::move(category)), piece_bytes_(piece_bytes) {}

void* DeviceScratch::get(Stream& stream, std::int64_t bytes) {
  require(bytes <= piece_bytes_, "an operation asks for {} of scratch memory, there are {} for each stream",
          format_bytes(bytes), format_bytes(piece_bytes_));
  return piece_of(stream).data();
}

Buffer& DeviceScratch::piece_of(Stream& stream) {
  const auto found = pieces_.find(&stream);
  if (found != pieces_.end()) return found->second;
  return pieces_.emplace(&stream, device_.allocate(piece_bytes_, category_)).first->second;
}

}  // namespace skrull
