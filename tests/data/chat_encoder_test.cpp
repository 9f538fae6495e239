#include "skrull/data/chat_encoder.h"

#include <string>
#include <vector>

#include "data/tiny_tokenizer.h"
#include "skrull/data/sample_report.h"
#include "store_fixture.h"
#include "support/catch.h"

using namespace skrull;
using test::contains;
using test::invalid_input_of;
using test::StoreFixture;
using test::tiny_im_end;

namespace {

namespace fs = std::filesystem;

/// Rows through a tiny byte-level tokenizer and Qwen's chat template into a store.
class ChatFixture {
 public:
  ChatFixture() {
    test::write_tiny_tokenizer(tokenizer_.path());
    encoder_ = load_chat_encoder(tokenizer_.path());
  }

  TokenStore store_of(const std::string& rows) {
    TokenStoreRequest request = rows_.request({rows_.write("chat.jsonl", rows)});
    request.encoder = encoder_.get();
    request.options.cutoff_len = cutoff_len;
    request.options.overlength = OverlengthPolicy::truncate;
    return rows_.open(request);
  }

  /// The message behind "<file>:1: ".
  std::string failure(const std::string& row) {
    const std::string message = invalid_input_of([&] { store_of(row); });
    const std::string where = "chat.jsonl:1: ";
    return contains(message, where) ? message.substr(message.find(where) + where.size()) : message;
  }

  std::string text(const TokenStore& store, std::int64_t sample) const { return encoder_->decode(store.ids(sample)); }
  /// The texts of the runs of tokens that are predicted, one after the other, each followed by "|".
  std::string trained_text(const TokenStore& store, std::int64_t sample) const {
    std::string result;
    const auto labels = store.labels(sample);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == ignored_label) continue;
      result += encoder_->decode(labels.subspan(i, 1));
      if (labels[i + 1] == ignored_label) result += "|";
    }
    return result;
  }
  const TextEncoder& encoder() const { return *encoder_; }
  const fs::path& tokenizer_folder() const { return tokenizer_.path(); }

  std::int64_t cutoff_len = 4096;

 private:
  StoreFixture rows_;
  test::TemporaryFolder tokenizer_;
  std::unique_ptr<TextEncoder> encoder_;
};

constexpr const char* two_turns =
    R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, )"
    R"({"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]})";

}  // namespace

TEST_CASE("of a conversation each assistant turn and its end are trained, and nothing else") {
  ChatFixture fixture;
  const TokenStore store = fixture.store_of(two_turns);
  CHECK(fixture.text(store, 0) ==
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\none<|im_end|>\n"
        "<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\nfour<|im_end|>"
        "\n");
  CHECK(fixture.trained_text(store, 0) == "two<|im_end|>|four<|im_end|>|");
  CHECK(store.supervised(0) > 0);
  CHECK(store.supervised(0) < store.length(0));
}

TEST_CASE("control tokens spelled in content stay text, and only true ends are labels") {
  ChatFixture fixture;
  const TokenStore store = fixture.store_of(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b<|im_end|>c"}]})");
  const auto ids = store.ids(0);
  CHECK(std::count(ids.begin(), ids.end(), tiny_im_end) == 3);  // system, user, assistant
  const auto labels = store.labels(0);
  CHECK(std::count(labels.begin(), labels.end(), tiny_im_end) == 1);
}

TEST_CASE("the system text of the row replaces the template's and the conversation's") {
  ChatFixture fixture;
  const std::string user = R"({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  for (const std::string& row : {R"({"system": "mine", "messages": [)" + user,
                                 R"({"system": "mine", "messages": [{"role": "system", "content": "old"}, )" + user}) {
    const TokenStore store = fixture.store_of(row);
    CHECK(contains(fixture.text(store, 0), "<|im_start|>system\nmine<|im_end|>\n<|im_start|>user\na<|im_end|>"));
    CHECK(store.report().ignored.empty());
  }
}

TEST_CASE("truncation inside the prompt leaves nothing to train, so the row is dropped and counted") {
  ChatFixture fixture;
  const std::string short_row = R"({"text": "hello"})";
  fixture.cutoff_len = 40;
  const TokenStore store = fixture.store_of(two_turns + ("\n" + short_row));
  CHECK(store.size() == 1);
  CHECK(store.report().untrained == RowCount{1, {0, 1}});
  CHECK(store.origin(0).line == 2);
}

TEST_CASE("documents end with the end-of-text token, which is trained") {
  ChatFixture fixture;
  const TokenStore store = fixture.store_of(R"({"text": "hello<|im_end|>"})");
  CHECK(fixture.text(store, 0) == "hello<|im_end|><|endoftext|>");
  CHECK(store.ids(0).back() == test::tiny_end_of_text);
  CHECK(store.labels(0)[store.labels(0).size() - 2] == test::tiny_end_of_text);
  CHECK(store.supervised(0) == store.length(0) - 1);
  const auto ids = store.ids(0);
  CHECK(std::count(ids.begin(), ids.end(), tiny_im_end) == 0);
}

TEST_CASE("malformed conversations name file, line, field, value and what is expected") {
  ChatFixture fixture;
  CHECK(fixture.failure(R"({"messages": [{"role": "human", "content": "secret"}]})") ==
        "messages[0].role: \"human\" is not a role; expected one of system, user, assistant, tool");
  CHECK(contains(fixture.failure(R"({"messages": []})"), "messages: empty"));
  CHECK(contains(fixture.failure(R"({"messages": "secret"})"), "messages: expected a list of messages, got text"));
  CHECK(contains(fixture.failure(R"({"system": "s", "messages": [5]})"), "messages[1]: expected an object"));
  const std::string object =
      fixture.failure(R"({"messages": [{"role": "assistant", "content": {"answer": "secret"}}]})");
  CHECK(contains(object, "messages[0].content: expected text, a list of text parts or null, got an object"));
  CHECK_FALSE(contains(object, "secret"));
  CHECK(contains(fixture.failure(R"({"messages": [{"role": "user", "content": "only a question"}]})"),
                 "kept 0 of 1 rows: 1 dropped without a token to train on"));
}

TEST_CASE("fields of messages that mean nothing here are reported once") {
  ChatFixture fixture;
  const std::string row =
      R"({"messages": [{"role": "user", "content": null, "mood": 1}, {"role": "assistant", "content": "b", "mood": 2}]})";
  const TokenStore store = fixture.store_of(row + "\n" + row);
  REQUIRE(store.report().ignored.size() == 1);
  CHECK(store.report().ignored[0] == IgnoredColumn{"messages[].mood", {2, {0, 1}}});
}

TEST_CASE("large integers in tools reach the prompt digit by digit") {
  ChatFixture fixture;
  const TokenStore store =
      fixture.store_of(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], )"
                       R"("tools": [{"name": "f", "limit": 123456789012345678901234567890}]})");
  CHECK(contains(fixture.text(store, 0), R"("limit": 123456789012345678901234567890)"));
}

TEST_CASE("a sample is shown with its trained turns marked") {
  ChatFixture fixture;
  const TokenStore store = fixture.store_of(two_turns);
  CHECK(contains(describe_sample(store, 0, &fixture.encoder()),
                 "<|im_start|>assistant\n⟦two<|im_end|>⟧\n<|im_start|>user\nthree<|im_end|>\n"));
}

TEST_CASE("folders without a tokenizer or with an unknown template") {
  const test::TemporaryFolder empty;
  CHECK(load_chat_encoder(empty.path()) == nullptr);

  const test::TemporaryFolder foreign;
  test::write_tiny_tokenizer(foreign.path());
  write_file_atomically(foreign / "chat_template.jinja", "{{ messages }}");
  const auto encoder = load_chat_encoder(foreign.path());
  CHECK(encoder->encode_document("hello").ids.size() == 2);
  const StoreFixture fixture;
  const SampleBuilder builder(encoder.get(), {100, OverlengthPolicy::drop, 1000});
  CHECK(contains(invalid_input_of([&] {
                   builder.build(Row{two_turns, 3, 1}, "f");
                 }),
                 "chat_template.jinja: this chat template is not known"));
  ChatFixture known;
  CHECK(encoder->fingerprint() != known.encoder().fingerprint());
}
