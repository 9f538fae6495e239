#include "tokenizer_files.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "pre_tokenizer.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "skrull/core/text.h"

namespace skrull {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A value in a JSON file, with its place for messages.
class Node {
 public:
  Node(const Json& json, std::string place) : json_(json), place_(std::move(place)) {}

  /// The member, or null when this isn't an object or has no such member.
  Node operator[](const std::string& key) const {
    static const Json null;
    const auto found = json_.is_object() ? json_.find(key) : json_.end();
    return {json_.is_object() && found != json_.end() ? *found : null,
            place_.ends_with(": ") ? place_ + key : place_ + "." + key};
  }
  std::vector<Node> elements() const {
    if (!json_.is_array()) refuse("a list");
    std::vector<Node> result;
    for (std::size_t i = 0; i < json_.size(); ++i) result.emplace_back(json_[i], fmt::format("{}[{}]", place_, i));
    return result;
  }
  std::vector<std::pair<std::string, Node>> members() const {
    if (!json_.is_object()) refuse("an object");
    std::vector<std::pair<std::string, Node>> result;
    for (const auto& item : json_.items()) result.emplace_back(item.key(), (*this)[item.key()]);
    return result;
  }

  bool is_null() const { return json_.is_null(); }
  bool is_string() const { return json_.is_string(); }
  bool is_object() const { return json_.is_object(); }
  bool is(std::string_view text) const { return json_.is_string() && json_.get_ref<const std::string&>() == text; }
  bool is_false_or_null() const { return json_.is_null() || json_ == false; }
  bool is_empty_or_null() const { return json_.is_null() || is(""); }
  std::string text() const {
    if (!json_.is_string()) refuse("text");
    return json_.get<std::string>();
  }
  std::int64_t integer() const {
    if (!json_.is_number_integer()) refuse("an integer");
    return json_.get<std::int64_t>();
  }
  bool flag() const {
    if (json_.is_null()) return false;
    if (!json_.is_boolean()) refuse("true or false");
    return json_.get<bool>();
  }

  const std::string& place() const { return place_; }
  /// Throws InvalidInput with the place, the value and what is supported.
  [[noreturn]] void refuse(std::string_view supported) const {
    std::string value = json_.dump(-1, ' ', false, Json::error_handler_t::replace);
    constexpr std::size_t longest = 100;
    if (value.size() > longest) value = fmt::format("{} bytes of {}", value.size(), json_.type_name());
    throw_invalid_input("{} is {}; supported is only {}", place_, value, supported);
  }

 private:
  const Json& json_;
  std::string place_;
};

/// Receives the events of parsing tokenizer.json (or, with `whole_file_is_vocab`, vocab.json): vocabulary and merges go
/// straight into a BpeBuilder, everything else into a document. Half a million small values are never a tree.
class TokenizerJsonReader {
 public:
  TokenizerJsonReader(BpeBuilder& bpe, bool whole_file_is_vocab)
      : bpe_(bpe), whole_file_is_vocab_(whole_file_is_vocab) {}

  const Json& document() const { return document_; }

  // The interface nlohmann::json::sax_parse calls.
  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(Json::number_integer_t value) { return number(value); }
  bool number_unsigned(Json::number_unsigned_t value) {
    return number(value > static_cast<Json::number_unsigned_t>(BpeModel::id_limit) ? BpeModel::id_limit
                                                                                   : static_cast<std::int64_t>(value));
  }
  bool number_float(Json::number_float_t value, const std::string& /*digits*/) { return scalar(value); }
  bool binary(Json::binary_t& /*value*/) { return false; }
  bool string(std::string& value) {
    if (part_ == Part::merges && pair_depth_ == 0) {
      bpe_.add_merge_line(value);
    } else if (part_ == Part::merges) {
      pair_.push_back(value);
    } else {
      return scalar(std::move(value));
    }
    return true;
  }
  bool key(std::string& value) {
    key_ = value;
    return true;
  }
  bool start_object(std::size_t /*size*/) {
    if (part_ != Part::document) return refuse();
    if (is_vocab()) {
      part_ = Part::vocab;
      return true;
    }
    open(Json::object());
    return true;
  }
  bool end_object() {
    if (std::exchange(part_, Part::document) == Part::document) close();
    return true;
  }
  bool start_array(std::size_t /*size*/) {
    if (part_ == Part::vocab || pair_depth_ > 0) return refuse();
    if (part_ == Part::merges) {
      pair_depth_ = 1;
      pair_.clear();
    } else if (in_model() && key_ == "merges") {
      part_ = Part::merges;
    } else {
      open(Json::array());
    }
    return true;
  }
  bool end_array() {
    if (part_ == Part::document) {
      close();
    } else if (pair_depth_ == 0) {
      part_ = Part::document;
    } else {
      pair_depth_ = 0;
      if (pair_.size() != 2) {
        throw_invalid_input("model.merges[{}] has {} parts; expected 2", bpe_.merge_count(), pair_.size());
      }
      bpe_.add_merge(pair_[0], pair_[1]);
    }
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) {
    return false;
  }

 private:
  enum class Part { document, vocab, merges };

  bool in_model() const { return open_.size() == 2 && top_key_ == "model"; }
  bool is_vocab() const {
    return whole_file_is_vocab_ ? open_.empty() && document_.is_null() : in_model() && key_ == "vocab";
  }
  bool refuse() const {
    throw_invalid_input(
        "{} holds something that is neither a {}", part_ == Part::vocab ? "the vocabulary" : "model.merges",
        part_ == Part::vocab ? fmt::format("token nor an id, near \"{}\"", key_)
                             : fmt::format("line nor a pair of tokens, near number {}", bpe_.merge_count()));
  }
  bool number(std::int64_t value) {
    if (part_ != Part::vocab) return scalar(value);
    bpe_.add_token(key_, value);
    return true;
  }
  bool scalar(Json value) {
    if (part_ != Part::document) return refuse();
    place(std::move(value));
    return true;
  }
  Json* place(Json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    if (open_.size() == 1) top_key_ = key_;
    return &(parent[key_] = std::move(value));
  }
  void open(Json value) { open_.push_back(place(std::move(value))); }
  void close() { open_.pop_back(); }

  BpeBuilder& bpe_;
  bool whole_file_is_vocab_;
  Part part_ = Part::document;
  int pair_depth_ = 0;
  std::vector<std::string> pair_;
  std::string key_;
  std::string top_key_;
  Json document_;
  std::vector<Json*> open_;
};

/// Runs `work`, putting the file in front of InvalidInput's message.
template <class Work>
auto naming(const fs::path& file, Work&& work) {
  try {
    return work();
  } catch (const InvalidInput& error) {
    throw_invalid_input("{}: {}", file.string(), error.what());
  }
}

Json read_vocabulary(const fs::path& file, bool whole_file_is_vocab, BpeBuilder& bpe) {
  const MappedFile mapped(file);
  TokenizerJsonReader reader(bpe, whole_file_is_vocab);
  const std::string_view text = mapped.text();
  const bool parsed = naming(file, [&] { return Json::sax_parse(text.begin(), text.end(), &reader); });
  // The plain parser meets the same error and reports its line and column.
  if (!parsed) read_json_file(file);
  require(parsed, "{}: the JSON parser stopped without a reason", file.string());
  return reader.document();
}

void read_merges_file(const fs::path& file, BpeBuilder& bpe) {
  const MappedFile mapped(file);
  std::string_view rest = mapped.text();
  bool first = true;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool header = std::exchange(first, false) && line.starts_with("#version");
    if (!header && !line.empty()) bpe.add_merge_line(line);
  }
}

AddedToken read_added_token(const Node& node, std::int64_t id) {
  for (const char* option : {"lstrip", "rstrip", "single_word"}) {
    if (!node[option].is_false_or_null()) node[option].refuse("false");
  }
  if (id < 0 || id >= BpeModel::id_limit) node["id"].refuse(fmt::format("0 to {}", BpeModel::id_limit - 1));
  AddedToken token{static_cast<std::int32_t>(id), node["content"].text(), node["special"].flag(),
                   node["normalized"].flag()};
  if (token.content.empty()) node["content"].refuse("text that is not empty");
  return token;
}

/// The added tokens of tokenizer_config.json: {"151643": {"content": ..}, ...}.
std::vector<AddedToken> read_added_tokens_decoder(const Node& node) {
  std::vector<AddedToken> tokens;
  if (node.is_null()) return tokens;
  for (const auto& [key, value] : node.members()) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      throw_invalid_input("{}: the key is not a token id", value.place());
    }
    tokens.push_back(read_added_token(value, id));
  }
  return tokens;
}

bool read_normalizer(const Node& node) {
  if (node.is_null()) return false;
  if (node["type"].is("NFC")) return true;
  if (!node["type"].is("Sequence")) node["type"].refuse("\"NFC\"");
  bool nfc = false;
  for (const Node& step : node["normalizers"].elements()) nfc |= read_normalizer(step);
  return nfc;
}

std::string read_split(const Node& node) {
  if (!node["type"].is("Split")) node["type"].refuse("\"Split\" (with a Regex) followed by \"ByteLevel\"");
  if (!node["behavior"].is("Isolated")) node["behavior"].refuse("\"Isolated\"");
  if (!node["invert"].is_false_or_null()) node["invert"].refuse("false");
  return node["pattern"]["Regex"].text();
}

std::string read_pre_tokenizer(const Node& node) {
  if (node["type"].is("Sequence")) {
    const Node list = node["pretokenizers"];
    const std::vector<Node> steps = list.elements();
    if (steps.size() == 1) return read_pre_tokenizer(steps[0]);
    if (steps.size() != 2) list.refuse("[Split, ByteLevel]");
    std::string pattern = read_split(steps[0]);
    if (!steps[1]["type"].is("ByteLevel")) steps[1]["type"].refuse("\"ByteLevel\"");
    if (!steps[1]["add_prefix_space"].is_false_or_null()) steps[1]["add_prefix_space"].refuse("false");
    if (!steps[1]["use_regex"].is_false_or_null()) steps[1]["use_regex"].refuse("false");
    return pattern;
  }
  if (!node["type"].is("ByteLevel")) node["type"].refuse("\"Sequence\" of Split and ByteLevel, or \"ByteLevel\"");
  if (!node["add_prefix_space"].is_false_or_null()) node["add_prefix_space"].refuse("false");
  if (!node["use_regex"].is_null() && !node["use_regex"].flag()) node["use_regex"].refuse("true without a Split");
  return std::string(gpt2_pattern);
}

void check_model(const Node& model) {
  if (!model.is_object()) model.refuse("an object");
  if (!model["type"].is_null() && !model["type"].is("BPE")) model["type"].refuse("\"BPE\"");
  if (!model["dropout"].is_null()) model["dropout"].refuse("null");
  for (const char* option : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model[option].is_empty_or_null()) model[option].refuse("null or \"\"");
  }
  for (const char* option : {"byte_fallback", "ignore_merges"}) {
    if (!model[option].is_false_or_null()) model[option].refuse("false");
  }
}

void read_tokenizer_json(const fs::path& file, TokenizerDefinition& definition) {
  BpeBuilder bpe;
  const Json document = read_vocabulary(file, false, bpe);
  const Node root(document, file.string() + ": ");
  check_model(root["model"]);
  if (bpe.token_count() == 0) throw_invalid_input("{}: model.vocab is missing or empty", file.string());
  for (const char* part : {"post_processor", "decoder"}) {
    const Node node = root[part];
    if (!node.is_null() && !node["type"].is("ByteLevel")) node["type"].refuse("\"ByteLevel\"");
  }
  definition.nfc = read_normalizer(root["normalizer"]);
  definition.split_pattern = read_pre_tokenizer(root["pre_tokenizer"]);
  if (!root["added_tokens"].is_null()) {
    for (const Node& token : root["added_tokens"].elements()) {
      definition.added_tokens.push_back(read_added_token(token, token["id"].integer()));
    }
  }
  definition.model = naming(file, [&] { return bpe.build(); });
  definition.files.push_back(file);
}

void read_vocab_and_merges(const fs::path& folder, TokenizerDefinition& definition) {
  const fs::path vocab = folder / "vocab.json";
  const fs::path merges = folder / "merges.txt";
  BpeBuilder bpe;
  read_vocabulary(vocab, true, bpe);
  if (bpe.token_count() == 0) throw_invalid_input("{}: expected an object of tokens and ids", vocab.string());
  naming(merges, [&] { read_merges_file(merges, bpe); });
  definition.model = naming(merges, [&] { return bpe.build(); });
  definition.split_pattern = PreTokenizer::qwen_pattern;
  definition.nfc = true;
  definition.files.push_back(vocab);
  definition.files.push_back(merges);
}

/// Adds the tokens that aren't there yet; one that contradicts an earlier one is an error.
void merge_added_tokens(const fs::path& file, const std::vector<AddedToken>& more, std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : more) {
    const auto same = std::find_if(tokens.begin(), tokens.end(), [&](const AddedToken& other) {
      return other.id == token.id || other.content == token.content;
    });
    if (same == tokens.end()) {
      tokens.push_back(token);
    } else if (same->id != token.id || same->content != token.content) {
      throw_invalid_input("{}: the added token {} \"{}\" contradicts {} \"{}\"", file.string(), token.id, token.content,
                          same->id, same->content);
    }
  }
}

/// "eos_token": "<|im_end|>", or {"content": "<|im_end|>", ..} in older files.
std::string read_token_name(const Node& node) {
  if (node.is_null()) return {};
  return node.is_object() ? node["content"].text() : node.text();
}

void read_tokenizer_config(const fs::path& file, TokenizerDefinition& definition) {
  const Json document = read_json_file(file);
  const Node root(document, file.string() + ": ");
  merge_added_tokens(file, read_added_tokens_decoder(root["added_tokens_decoder"]), definition.added_tokens);
  definition.eos_token = read_token_name(root["eos_token"]);
  definition.pad_token = read_token_name(root["pad_token"]);
  definition.files.push_back(file);
}

/// {"<|im_start|>": 151644, ..}, as older versions of transformers saved them.
void read_added_tokens_json(const fs::path& file, TokenizerDefinition& definition) {
  const Json document = read_json_file(file);
  std::vector<AddedToken> tokens;
  for (const auto& [content, id] : Node(document, file.string() + ": ").members()) {
    const Json token = {{"content", content}, {"special", true}};
    tokens.push_back(read_added_token(Node(token, id.place()), id.integer()));
  }
  merge_added_tokens(file, tokens, definition.added_tokens);
  definition.files.push_back(file);
}

bool is_file(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

}  // namespace

bool has_tokenizer_files(const fs::path& folder) {
  return is_file(folder / "tokenizer.json") || (is_file(folder / "vocab.json") && is_file(folder / "merges.txt"));
}

TokenizerDefinition read_tokenizer_folder(const fs::path& folder) {
  TokenizerDefinition definition;
  if (!has_tokenizer_files(folder)) {
    throw_invalid_input("{}: no tokenizer in this folder; expected tokenizer.json, or vocab.json and merges.txt",
                        folder.string());
  }
  if (is_file(folder / "tokenizer.json")) {
    read_tokenizer_json(folder / "tokenizer.json", definition);
  } else {
    read_vocab_and_merges(folder, definition);
  }
  if (is_file(folder / "tokenizer_config.json")) read_tokenizer_config(folder / "tokenizer_config.json", definition);
  if (is_file(folder / "added_tokens.json")) read_added_tokens_json(folder / "added_tokens.json", definition);
  std::sort(definition.added_tokens.begin(), definition.added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return definition;
}

}  // namespace skrull
