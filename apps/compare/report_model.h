#pragma once
#include <string>
#include <utility>
#include <vector>

#include "apps/compare/chart.h"
#include "apps/compare/verdict.h"

/// All that report.html says, as data: claims fill it in, report_page() writes it down. Texts are
/// plain; none is ever taken for markup.
namespace lockstep::apps {

/// What a cell of the documents' tables says, and what became of it.
enum class Agreement { yes, in_part, no, unknown };
struct ComparisonCell {
  std::string claimed;   ///< as the document has it: "slow"; empty: it says nothing here
  std::string measured;  ///< "0.84 x all-reduce, 0.81 to 0.87"; empty: not measured
  Agreement agreement = Agreement::unknown;
};
struct ComparisonRow {
  std::string name;                   ///< of the strategy
  std::vector<ComparisonCell> cells;  ///< as many as columns
};
/// One of the documents' tables, cell by cell.
struct ComparisonTable {
  std::string title;
  std::vector<std::string> columns;  ///< without the first, which names the rows
  std::vector<ComparisonRow> rows;
};

/// Where the two documents contradict each other.
struct Contradiction {
  std::string question;  ///< "In which type do gradients cross the wire?"
  std::string a, b;      ///< what each document says
  std::string answer;    ///< who is right, when
  std::string claim;     ///< id of the section that shows it
};

struct ClaimSection {
  std::string id;                     ///< "A2d"
  std::string statement;              ///< one line
  std::string source;                 ///< "document A, compression"
  std::string done;                   ///< what was done, in a paragraph
  std::vector<std::string> commands;  ///< that repeat it, to copy
  std::string rule;                   ///< of the verdict, as written before the run
  std::vector<Figure> figures;
  std::vector<Chart> charts;
  Verdict verdict;
  std::string takeaway;  ///< what a practitioner does with it

  /// extension: not in the documents
  enum class Kind { claim, extension };
  Kind kind = Kind::claim;
};

struct CompareReport {
  std::string title, date, command;
  std::string summary;  ///< a paragraph: how much ran, what to make of it
  std::vector<std::pair<std::string, std::string>> machine;  ///< name, value
  std::vector<ComparisonTable> tables;
  std::vector<Contradiction> contradictions;
  std::vector<ClaimSection> claims;  ///< ids are unique
};

/// The report as one HTML file that needs no network. Bytes that are not UTF-8 become U+FFFD.
std::string report_page(const CompareReport& report);

}  // namespace lockstep::apps
