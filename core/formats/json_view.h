#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// Whole numbers from `least` to `most`.
struct IntegerRange {
  std::int64_t least, most;
};

/// A value of an external JSON file with its path in the file ("model.vocab[3]"). Access is by type; a missing value or
/// one of a different type is an input error that names the path. A member that is null counts as absent.
class JsonView {
 public:
  JsonView(const Json& value, std::string path = {}) : value_(&value), path_(std::move(path)) {}  // NOLINT: implicit

  const Json& json() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  JsonView at(std::string_view key) const;
  std::optional<JsonView> find(std::string_view key) const;
  /// Access to the entries of a list.
  JsonView entry(std::size_t index) const;
  std::size_t size() const { return list().size(); }

  const std::string& text() const;
  bool flag() const;
  double number() const;  ///< finite
  std::int64_t integer(IntegerRange range) const;

  std::string text(std::string_view key, std::string_view otherwise) const;
  bool flag(std::string_view key, bool otherwise) const;
  double number(std::string_view key, double otherwise) const;

  const Json::array_t& list() const;
  const Json::object_t& object() const;
  template <class F>
  void each(F&& f) const {
    for (std::size_t i = 0; i < list().size(); ++i) f(entry(i));
  }

  /// Throws an input error about this value.
  [[noreturn]] void refuse(const std::string& cause, const std::string& remedy = {}) const;

 private:
  [[noreturn]] void refuse_type(std::string_view wanted) const;
  std::string path_of(std::string_view key) const;

  const Json* value_;
  std::string path_;
};

/// The readable part of the JSON library's message about a value of the wrong type.
std::string plain_text(const nlohmann::json::exception& error);

/// Runs `read`, which uses the contents of a file, and adds the file's name to errors.
template <class F>
auto reading(const std::filesystem::path& file, F&& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::input, {.cause = "has unexpected contents: " + plain_text(e),
                            .place = file.string(),
                            .remedy = "correct the file, or fetch it again"});
  } catch (const Error& e) {
    ErrorText text = e.text();
    if (text.place.starts_with(file.string())) throw;
    text.place = file.string() + (text.place.empty() ? "" : ": " + text.place);
    throw Error(e.kind(), std::move(text));
  }
}

}  // namespace qtrain
