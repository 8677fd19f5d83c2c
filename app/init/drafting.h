#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/init/choices.h"
#include "app/init/decisions.h"
#include "app/init/row_look.h"
#include "core/log.h"
#include "core/parallel.h"
#include "data/dataset.h"
#include "hub/name.h"
#include "plan/ways_to_fit.h"
#include "train/setup/compute.h"
#include "train/setup/hub_files.h"
#include "train/setup/text_folder.h"

namespace qtrain::init {

struct DraftRequest {
  std::string model, data, revision;  ///< as the user names them
  Overrides given;                    ///< on the command line
  ModelFiles files = ModelFiles::text;
  /// Throws if a config cannot be used for reasons that lie elsewhere.
  std::function<void(const ResolvedConfig&)> require_usable = {};
};

/// Looks at a model, its data and the machine, and chooses the values of a config. Errors: those of reading the model
/// and the rows; ErrorKind::memory if no method fits; what `confirm` and `require_usable` throw.
class Drafting {
 public:
  Drafting(DraftRequest request, Choices::Confirm confirm, Log& log);

  /// Finds out about the model and the rows, which asks the user nothing.
  void look();
  /// Chooses everything as if the user kept every value, and forgets it: what would be refused is refused before the
  /// first question.
  void rehearse();
  void choose();

  const Choices& choices() const { return choices_; }
  void replace(Choice choice) { choices_.replace(std::move(choice)); }
  /// The config so far, with further values.
  ResolvedConfig config(const Json& more = Json::object()) const;
  /// The first comment of the file.
  std::string head() const;
  /// Warnings about the rows.
  const std::vector<std::string>& warnings() const { return course_.warnings; }
  /// Whether the model has a chat template, or one was chosen.
  bool has_chat_template() const { return text_.chat_template.has_value(); }
  std::int64_t updates() const { return course_.updates; }
  /// Seconds that the run takes, as predicted; none if the speed of the device is unknown.
  const std::optional<Ranged<double>>& seconds() const { return course_.seconds; }

 private:
  // The model and the rows (look.cpp).
  void look_at_model();
  void look_at_data();
  std::string described_rows() const;
  void note_columns();
  bool has_files(const Json& more, Split split) const;
  void choose_splits();
  bool has_own_evaluation();
  bool is_read_likewise(const Config& config);
  void choose_evaluation();
  void choose_template();
  void choose_end();
  void measure();
  void measure_with(const Json& more);
  void require_rows(const ResolvedConfig& config);
  void fetch(const Json& more, const NeededOfConfig& needed) const;

  // The method, by what fits (method.cpp).
  void choose_method();
  // Sizes, rates and events (course.cpp).
  void choose_loss();
  void choose_learned();
  void choose_course();
  void choose_batches();
  void choose_events();
  void choose_samples();
  void choose_output();
  Json ask(Choice choice, const std::function<void(const ResolvedConfig&)>& require = {});
  bool learns_texts() const { return look_.shape == RowShape::text; }
  std::vector<Method> allowed_methods() const;
  bool gives(std::string_view key, const Json& value) const;
  /// What a search for a method that fits found.
  struct Fit {
    bool fits = false;
    std::optional<std::size_t> needed = {};  ///< bytes, of what fits or else of the smallest
    std::optional<Error> refused = {};       ///< why a config could not be parsed
  };
  Fit find_method();
  [[noreturn]] void fail_without_room(const Fit& fit) const;
  std::int64_t longest_row(const DataSection& data) const;
  std::int64_t length_of(Method method) const;
  std::optional<AnsweredPlan> plan(const Json& more, std::optional<Error>* refused = nullptr) const;
  AnsweredPlan plan_with(const ResolvedConfig& config) const;
  bool has_room(const AnsweredPlan& plan) const;
  Json tried(Method method, std::int64_t length) const;
  Json batches_of(std::int64_t rows) const;
  Json chosen_batches(std::int64_t ranks);
  std::int64_t fitting_micro_batch(std::int64_t most) const;
  bool evaluates() const;

  DraftRequest request_;
  Choices choices_;
  Log& log_;
  ThreadPool pool_;
  std::vector<std::string> notes_;  ///< of the columns

  // What was found.
  std::int64_t hidden_size_ = 0, positions_ = 0;
  bool random_init_ = false;
  TextFolder text_;
  RawRows rows_;
  RowLook look_;
  bool own_evaluation_ = false;
  DatasetStatistics measured_;
  ComputePlan compute_;
  TargetDevice target_;
  std::optional<Ranged<DeviceSpeed>> speed_;

  /// What follows.
  struct Course {
    Method method = Method::lora;
    std::int64_t train_rows = 0, length = 0, epochs = 1, per_update = 1, updates = 0;
    std::optional<Ranged<double>> seconds = {};
    std::vector<std::string> warnings = {};  ///< all
    bool chose_events = false;
  };
  Course course_;
};

}  // namespace qtrain::init
