#pragma once
// A text encoder for tests that needs no tokenizer: the bytes are the ids, 256 opens a message, 257 ends it.

#include <nlohmann/json.hpp>
#include <string>

#include "data/errors.h"
#include "skrull/core/error.h"
#include "skrull/data/micro_batch.h"
#include "skrull/data/sample.h"

namespace skrull::test {

inline constexpr std::int32_t message_begin = 256;
inline constexpr std::int32_t message_end = 257;
inline constexpr std::int64_t byte_vocabulary = 258;

class ByteEncoder : public TextEncoder {
 public:
  UnshiftedSample encode_conversation(const nlohmann::ordered_json& row) const override {
    UnshiftedSample sample;
    for (const auto& message : row.at("messages")) {
      const auto role = message.at("role").get<std::string>();
      if (role != "system" && role != "user" && role != "assistant") {
        throw InvalidInput("messages: unknown role \"" + role + "\"");
      }
      push(sample, message_begin, false);
      push(sample, static_cast<unsigned char>(role.front()), false);
      for (const char byte : message.at("content").get<std::string>()) {
        push(sample, static_cast<unsigned char>(byte), role == "assistant");
      }
      push(sample, message_end, role == "assistant");
    }
    return sample;
  }

  UnshiftedSample encode_document(std::string_view text) const override {
    UnshiftedSample sample;
    for (const char byte : text) push(sample, static_cast<unsigned char>(byte), true);
    push(sample, message_end, true);
    return sample;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids)
      text += id == message_begin ? "<" : id == message_end ? ">" : std::string(1, static_cast<char>(id));
    return text;
  }

  std::string fingerprint() const override { return "bytes"; }

 private:
  static void push(UnshiftedSample& sample, std::int32_t id, bool supervised) {
    sample.ids.push_back(id);
    sample.labels.push_back(supervised ? id : ignored_label);
  }
};

}  // namespace skrull::test
