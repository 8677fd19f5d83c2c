#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/keyed_hash.h"
#include "text/template/python/work.h"

namespace qtrain {

class PyObject;
class PyValue;
struct PyDict;
struct PyList;

using PyItems = std::vector<PyValue>;
/// Python integers of up to 127 bits; larger results are errors, never wrapped.
using PyInt = __int128;

struct PyStr {
  std::string text;     ///< UTF-8
  bool markup = false;  ///< a markupsafe string: escapes what is appended to it
};

/// A missing value, and the error message if it is used.
struct PyUndefined {
  std::string message;
};

struct PyNone {};

enum class PyKind : std::uint8_t { undefined, none, boolean, integer, real, string, list, tuple, dict, object };

/// A Python value. Strings, lists, tuples and dicts are immutable once made (as the sandbox requires), so copies share
/// data.
class PyValue {
 public:
  PyValue() : held_(PyNone{}) {}
  PyValue(bool b) : held_(b) {}                                                          // NOLINT: values convert
  PyValue(PyInt i) : held_(i) {}                                                         // NOLINT
  PyValue(int i) : held_(static_cast<PyInt>(i)) {}                                       // NOLINT
  PyValue(std::size_t i) : held_(static_cast<PyInt>(i)) {}                               // NOLINT
  PyValue(double d) : held_(d) {}                                                        // NOLINT
  PyValue(std::string s) : held_(std::make_shared<const PyStr>(PyStr{std::move(s)})) {}  // NOLINT
  PyValue(std::string_view s) : PyValue(std::string(s)) {}                               // NOLINT
  PyValue(const char* s) : PyValue(std::string(s)) {}                                    // NOLINT
  PyValue(std::shared_ptr<PyObject> o) : held_(std::move(o)) {}                          // NOLINT
  template <class T>
  requires std::derived_from<T, PyObject> PyValue(std::shared_ptr<T> o)
      : held_(std::shared_ptr<PyObject>(std::move(o))) {}  // NOLINT
  PyValue(PyDict dict);                                    // NOLINT

  static PyValue list(PyItems items);
  static PyValue tuple(PyItems items);
  static PyValue markup(std::string s);
  static PyValue undefined(std::string message);

  PyKind kind() const;
  bool is(PyKind k) const { return kind() == k; }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const PyStr>>(held_); }
  bool is_sequence() const { return is(PyKind::list) || is(PyKind::tuple); }

  bool boolean() const { return std::get<bool>(held_); }
  double real() const { return std::get<double>(held_); }
  /// The integer of an int or bool.
  std::optional<PyInt> integer() const;
  const std::string& text() const { return std::get<std::shared_ptr<const PyStr>>(held_)->text; }
  bool is_markup() const { return is_string() && std::get<std::shared_ptr<const PyStr>>(held_)->markup; }
  const PyItems& items() const;
  const PyList& sequence() const { return *std::get<std::shared_ptr<const PyList>>(held_); }
  const PyDict& dict() const { return *std::get<std::shared_ptr<const PyDict>>(held_); }
  PyObject& object() const { return *std::get<std::shared_ptr<PyObject>>(held_); }
  const std::string& undefined_message() const { return std::get<std::shared_ptr<const PyUndefined>>(held_)->message; }
  /// The object as T, or null.
  template <class T>
  T* as() const {
    const auto* held = std::get_if<std::shared_ptr<PyObject>>(&held_);
    return held ? dynamic_cast<T*>(held->get()) : nullptr;
  }
  /// Whether both are the same object in memory (never for numbers).
  bool same_object(const PyValue& other) const;

  /// Depth of generators and loops nested in it, which are iterated and destroyed recursively.
  int chain() const;
  /// Moves its contents to `into` if nothing else shares them.
  void take_apart(PyItems& into);

 private:
  explicit PyValue(std::shared_ptr<const PyList> l) : held_(std::move(l)) {}
  std::variant<std::shared_ptr<const PyUndefined>, PyNone, bool, PyInt, double, std::shared_ptr<const PyStr>,
               std::shared_ptr<const PyList>, std::shared_ptr<const PyDict>, std::shared_ptr<PyObject>>
      held_;
};

/// Destroys values without recursion, so that deeply nested lists do not overflow the stack.
void py_release(PyItems values);

struct PyList {
  PyItems items;
  bool tuple = false;
  int chain = 0;
  ~PyList() { py_release(std::move(items)); }
};

/// A dict in insertion order. Keys compare as in Python (1 == 1.0 == True).
struct PyDict {
  std::vector<std::pair<PyValue, PyValue>> entries;
  int chain = 0;  ///< set when it becomes a value

  PyDict() = default;
  PyDict(PyDict&&) = default;
  PyDict(const PyDict&) = default;
  PyDict& operator=(PyDict&&) = default;
  PyDict& operator=(const PyDict&) = default;
  ~PyDict() { release(); }
  void release();

  const PyValue* find_text(std::string_view key) const;
  const PyValue* find(PyWork& work, const PyValue& key) const;
  void set(PyWork& work, PyValue key, PyValue value);

 private:
  std::unordered_map<std::string_view, std::size_t, KeyedHash>
      strings_;  // positions of string keys, once there are many
};

/// Arguments of a call.
struct PyArgs {
  PyItems positional;
  std::vector<std::pair<std::string, PyValue>> keywords;
};

/// Yields the items of an iterable one by one.
using PyNext = std::function<std::optional<PyValue>()>;

/// Values that are not plain data: functions, generators, ranges, views, and Jinja's own objects.
class PyObject : public std::enable_shared_from_this<PyObject> {
 public:
  /// `chain`: see PyValue::chain. Throws if it becomes too long.
  explicit PyObject(int chain = 0);
  int chain() const { return chain_; }
  /// Moves the values it holds to `into` when it is no longer needed.
  virtual void take_apart(PyItems&) {}
  virtual ~PyObject() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string repr(PyWork& work);
  virtual std::optional<PyValue> attribute(std::string_view) { return std::nullopt; }
  virtual bool callable() const { return false; }
  virtual PyValue call(PyWork& work, const PyArgs& args);
  /// Empty unless the object is iterable.
  virtual PyNext iterate(PyWork&) { return {}; }
  /// Only for objects with a length.
  virtual std::optional<std::size_t> length() { return std::nullopt; }
  /// Item of an object with a length, 0 <= index < length; none if it is not indexable.
  virtual std::optional<PyValue> item(std::size_t) { return std::nullopt; }

 private:
  int chain_;
};

/// "str", "int", "NoneType", "list", ...
std::string py_type_name(const PyValue& value);
bool py_truth(const PyValue& value);
/// Throws a TypeError unless the value can be a key.
void py_require_hashable(PyWork& work, const PyValue& value);

/// dict.items(), keys(), values()
class PyView : public PyObject {
 public:
  enum class Part : std::uint8_t { items, keys, values };
  PyView(PyValue dict, Part part) : PyObject(dict.chain()), dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  std::string repr(PyWork& work) override;
  PyNext iterate(PyWork&) override;
  void take_apart(PyItems& into) override { into.push_back(std::move(dict_)); }
  std::optional<std::size_t> length() override { return dict_.dict().entries.size(); }

 private:
  PyValue at(std::size_t index) const;
  PyValue dict_;
  Part part_;
};

/// range(start, stop, step). Throws for a step of 0 and, like Jinja's sandbox, for more than 100,000 items.
class PyRange : public PyObject {
 public:
  PyRange(PyInt start, PyInt stop, PyInt step);
  std::string_view type_name() const override { return "range"; }
  std::string repr(PyWork&) override;
  PyNext iterate(PyWork&) override;
  std::optional<std::size_t> length() override { return count_; }
  std::optional<PyValue> item(std::size_t index) override { return start_ + static_cast<PyInt>(index) * step_; }

 private:
  PyInt start_, stop_, step_;
  std::size_t count_;
};

/// Result of `map`, `select` and others: yields its items once.
class PyGenerator : public PyObject {
 public:
  PyGenerator(PyNext next, const PyValue& over, std::string_view type = "generator")
      : PyObject(over.chain() + 1), next_(std::move(next)), type_(type) {}
  std::string_view type_name() const override { return type_; }
  PyNext iterate(PyWork&) override {
    return [self = shared_from_this(), this] { return next_(); };
  }

 private:
  PyNext next_;
  std::string_view type_;
};

/// `over`: the source of the items.
inline PyValue make_generator(PyNext next, const PyValue& over, std::string_view type = "generator") {
  return std::make_shared<PyGenerator>(std::move(next), over, type);
}

}  // namespace qtrain
