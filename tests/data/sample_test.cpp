#include "skrull/data/sample.h"

#include <string>
#include <vector>

#include "byte_encoder.h"
#include "support/catch.h"

using namespace skrull;
using test::contains;
using test::invalid_input_of;

namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t X = ignored_label;

RowResult build(std::string_view text, const SampleOptions& options = {100, OverlengthPolicy::drop, 1000}) {
  const test::ByteEncoder encoder;
  return SampleBuilder(&encoder, options).build(Row{text, 7, 1}, "data.jsonl");
}

std::string failure(std::string_view text, const SampleOptions& options = {100, OverlengthPolicy::drop, 1000}) {
  return invalid_input_of([&] { build(text, options); });
}

}  // namespace

TEST_CASE("input_ids without labels train on every next token") {
  const RowResult result = build(R"({"input_ids": [5, 6, 7, 8]})");
  CHECK(result.outcome == RowOutcome::kept);
  CHECK(result.sample.ids == Ids{5, 6, 7, 8});
  CHECK(result.sample.labels == Ids{6, 7, 8, X});
  CHECK(result.sample.supervised == 3);  // T - 1
}

TEST_CASE("a column that is null is as none") {
  const RowResult row = build(R"({"messages": null, "text": "ab", "input_ids": null, "labels": null, "note": null})");
  CHECK(row.sample.ids == Ids{'a', 'b', test::message_end});
  CHECK(row.ignored.empty());
  CHECK(contains(failure(R"({"messages": null})"), "the row holds \"messages\" (null), expected one of"));
  CHECK(build(R"({"input_ids": [5, 6, 7, 8], "labels": null})").sample.labels == Ids{6, 7, 8, X});
}

TEST_CASE("labels are shifted once on the whole sequence") {
  const RowResult result = build(R"({"input_ids": [5, 6, 7, 8, 9], "labels": [5, -100, 7, -100, 9]})");
  CHECK(result.sample.labels == Ids{X, 7, X, 9, X});
  CHECK(result.sample.supervised == 2);
}

TEST_CASE("documents train on all tokens and the end of text") {
  const RowResult result = build(R"({"text": "ab"})");
  CHECK(result.sample.ids == Ids{'a', 'b', test::message_end});
  CHECK(result.sample.labels == Ids{'b', test::message_end, X});
}

TEST_CASE("conversations train on the assistant and its end") {
  const RowResult result =
      build(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yz"}]})");
  CHECK(result.sample.ids == Ids{256, 'u', 'q', 257, 256, 'a', 'y', 'z', 257});
  CHECK(result.sample.labels == Ids{X, X, X, X, X, 'y', 'z', 257, X});
}

TEST_CASE("the row's system text wins") {
  const std::string rest = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "y"}]})";
  const Ids with_system{256, 's', 'N', 257, 256, 'u', 'q', 257, 256, 'a', 'y', 257};
  CHECK(build(R"({"system": "N", "messages": [)" + rest).sample.ids == with_system);
  CHECK(build(R"({"system": "N", "messages": [{"role": "system", "content": "old"}, )" + rest).sample.ids ==
        with_system);
  const Ids without{256, 'u', 'q', 257, 256, 'a', 'y', 257};
  CHECK(build(R"({"system": null, "messages": [)" + rest).sample.ids == without);
  CHECK(build(R"({"system": "", "messages": [)" + rest).sample.ids == without);
  CHECK(contains(failure(R"({"system": 3, "messages": [)" + rest), "\"system\" is of type number, expected text"));
}

TEST_CASE("truncation keeps the first tokens and recomputes the labels") {
  const SampleOptions options{3, OverlengthPolicy::truncate, 1000};
  const RowResult cut = build(R"({"input_ids": [5, 6, 7, 8, 9]})", options);
  CHECK(cut.outcome == RowOutcome::truncated);
  CHECK(cut.original_length == 5);
  CHECK(cut.sample.ids == Ids{5, 6, 7});
  CHECK(cut.sample.labels == Ids{6, 7, X});  // 8 is not in the sample any more
  CHECK(cut.sample.supervised == 2);
  CHECK(build(R"({"input_ids": [5, 6, 7]})", options).outcome == RowOutcome::kept);
}

TEST_CASE("rows that are too long are dropped or refused") {
  const std::string row = R"({"input_ids": [5, 6, 7, 8]})";
  const RowResult dropped = build(row, {3, OverlengthPolicy::drop, 1000});
  CHECK(dropped.outcome == RowOutcome::overlength);
  CHECK(dropped.sample.ids.empty());
  CHECK(failure(row, {3, OverlengthPolicy::error, 1000}) ==
        "data.jsonl:7: the row has 4 tokens, more than cutoff_len 3 (overlength: error)");
}

TEST_CASE("rows without a supervised token are dropped, after truncation as well") {
  CHECK(build(R"({"input_ids": [5, 6], "labels": [-100, -100]})").outcome == RowOutcome::untrained);
  CHECK(build(R"({"input_ids": [5]})").outcome == RowOutcome::untrained);
  CHECK(build(R"({"input_ids": [5, 6], "labels": [5, -100]})").outcome == RowOutcome::untrained);  // nothing predicts 5
  const std::string late = R"({"input_ids": [5, 6, 7, 8], "labels": [-100, -100, -100, 8]})";
  CHECK(build(late).outcome == RowOutcome::kept);
  CHECK(build(late, {3, OverlengthPolicy::truncate, 1000}).outcome == RowOutcome::untrained);
  CHECK(build(R"({"text": ""})").outcome == RowOutcome::untrained);
}

TEST_CASE("unknown columns are handed on, known ones are not") {
  CHECK(build(R"({"id": 3, "text": "ab", "": 1, "tools": []})").ignored == std::vector<std::string>{"id", "", "tools"});
  CHECK(build(R"({"input_ids": [1, 2], "labels": [1, 2], "attention_mask": [1, 1]})").ignored ==
        std::vector<std::string>{"attention_mask"});
}

TEST_CASE("bad token ids name the entry and the vocabulary") {
  CHECK(failure(R"({"input_ids": [5, 1000]})") ==
        "data.jsonl:7: input_ids[1] is 1000, outside the model's vocabulary of 1000 tokens");
  CHECK(build(R"({"input_ids": [5, 999]})").outcome == RowOutcome::kept);
  CHECK(contains(failure(R"({"input_ids": [5, -1]})"), "input_ids[1] is -1, outside the model's vocabulary"));
  CHECK(contains(failure(R"({"input_ids": [5, -100]})"), "input_ids[1] is -100, outside"));
  CHECK(contains(failure(R"({"input_ids": [5, 6], "labels": [5, -1]})"), "labels[1] is -1, outside"));
  CHECK(contains(failure(R"({"input_ids": [5, 6], "labels": [5, 1000]})"), "labels[1] is 1000, outside"));
  CHECK(contains(failure(R"({"input_ids": [5, 4294967297]})"), "input_ids[1] is 4294967297, expected a token id"));
  CHECK(contains(failure(R"({"input_ids": [99999999999999999999]})"), "input_ids[0] is beyond 64 bits, expected"));
  CHECK(contains(failure(R"({"input_ids": [5, 1.5]})"), "input_ids[1] is 1.5, expected a token id"));
  CHECK(contains(failure(R"({"input_ids": [5, true]})"), "input_ids[1] is of type boolean"));
  CHECK(contains(failure(R"({"input_ids": [[5, 6]]})"), "input_ids[0] is of type array"));
  CHECK(contains(failure(R"({"input_ids": []})"), "\"input_ids\" is empty"));
  CHECK(contains(failure(R"({"input_ids": "5 6"})"), "\"input_ids\" is of type string, expected an array"));
  CHECK(contains(failure(R"({"input_ids": [5, 6], "labels": [5]})"), "\"labels\" has 1 entries and \"input_ids\" 2"));
}

TEST_CASE("text from a tokenizer larger than the model is refused") {
  CHECK(contains(failure(R"({"text": "ab"})", {100, OverlengthPolicy::drop, 257}), "is 257, outside the model's"));
}

TEST_CASE("bad JSON names line, column and reason, never content") {
  CHECK(failure(R"({"text": "secret" 5})").find("data.jsonl:7: column 19: invalid JSON: ") == 0);
  for (const char* row :
       {R"({"text": "secret)", R"({"text": secret})", R"({"text": "secret\q"})", "secret", "\"secret\"",
        R"({"secret... a very long key that is not a key but content": 1})", R"({"text": {"secret": 1}})"}) {
    const std::string message = failure(row);
    CHECK(message.find("data.jsonl:7:") == 0);
    CHECK_FALSE(contains(message, "secret"));
  }
  CHECK(failure(R"({"text": 1e999})") == "data.jsonl:7: column 14: invalid JSON: a number is too large");
  CHECK(failure(std::string(600, '[')) == "data.jsonl:7: JSON nested deeper than 512 levels");
  CHECK(failure("{\"text\": \"a\xFF\"}") == "data.jsonl:7: column 12: byte 0xFF is not valid UTF-8");
  CHECK(failure("{\"text\": \"\xC3\"}") == "data.jsonl:7: column 11: byte 0xC3 is not valid UTF-8");
  CHECK(contains(failure("[1]"), "the row is of type array, expected an object"));
}

TEST_CASE("rows of other kinds say what was seen, what is expected and how to convert") {
  CHECK(failure(R"({"massages": []})") ==
        "data.jsonl:7: the row holds \"massages\", expected one of \"messages\", \"text\", \"input_ids\"; did you mean "
        "\"messages\"?");
  const std::string alpaca = failure(R"({"instruction": "a", "input": "", "output": "b"})");
  CHECK(contains(alpaca, "the row holds \"instruction\", \"input\", \"output\", expected"));
  CHECK(contains(alpaca, "Alpaca rows: write {\"messages\""));
  CHECK(contains(failure(R"({"conversations": []})"), "rename \"conversations\" to \"messages\""));
  CHECK(contains(failure("{}"), "the row holds no key, expected"));
  CHECK(contains(failure(R"({"text": "a", "messages": []})"), "holds both \"messages\" and \"text\""));
  CHECK(contains(failure(R"({"text": {"a": 1}})"), "\"text\" is of type object, expected text"));
}

TEST_CASE("a malformed conversation is located") {
  CHECK(failure(R"({"messages": [{"role": "human", "content": "q"}]})") ==
        "data.jsonl:7: messages: unknown role \"human\"");
}

TEST_CASE("without a tokenizer only input_ids rows are accepted") {
  const SampleBuilder builder(nullptr, {100, OverlengthPolicy::drop, 1000});
  CHECK(builder.build(Row{R"({"input_ids": [1, 2]})", 1, 1}, "f").outcome == RowOutcome::kept);
  CHECK(contains(invalid_input_of([&] {
                   builder.build(Row{R"({"text": "a"})", 4, 1}, "f");
                 }),
                 "f:4: the row needs a tokenizer"));
}
