#include "skrull/core/checksum.h"

#include <spdlog/fmt/fmt.h>
#include <xxhash.h>

#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/core/file.h"

namespace skrull {
namespace {

constexpr std::size_t part_bytes = std::size_t{64} << 20;

}  // namespace

struct Checksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    require(xxh != nullptr, "out of memory");
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(const void* data, std::size_t bytes, const std::function<void()>& between) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, part_bytes);
    XXH3_128bits_update(state_->xxh, next, part);
    next += part;
    bytes -= part;
    if (between && bytes > 0) between();
  }
}

void Checksum::add_field(std::string_view text, const std::function<void()>& between) {
  const std::uint64_t size = text.size();
  add(&size, sizeof size);
  add(text.data(), text.size(), between);
}

void Checksum::add_file(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  add_field(mapped.text());
}

std::string Checksum::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace skrull
