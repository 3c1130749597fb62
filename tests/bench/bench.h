// Interleaved A/B timing for the benchmarks: a machine's speed drifts by more than most effects, so A and B are timed
// in pairs, one right after the other, and each pair gives one ratio. What is reported is the median ratio with a
// distribution-free 95 % interval (order statistics).
//
// Threads: one. Ownership: plain values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace collab::bench {

struct Interval {
  double low = 0;
  double median = 0;
  double high = 0;
};

// The median and the narrowest pair of order statistics that covers it with at least 95 % (needs 6 samples; with fewer
// the interval is the range).
[[nodiscard]] inline Interval median_interval(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  std::size_t rank = 0;  // samples below the interval; P(Binomial(n, 1/2) <= rank - 1) <= 2.5 %
  double probability = std::pow(0.5, static_cast<double>(n));
  for (double tail = probability; tail <= 0.025 && rank < n / 2; tail += probability) {
    ++rank;
    probability *= static_cast<double>(n - rank + 1) / static_cast<double>(rank);
  }
  if (rank > 0) --rank;
  const double median = n % 2 == 1 ? samples[n / 2] : 0.5 * (samples[n / 2 - 1] + samples[n / 2]);
  return {samples[rank], median, samples[n - 1 - rank]};
}

template <typename Work>
[[nodiscard]] double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Pairs {
  std::vector<double> a_seconds;
  std::vector<double> b_seconds;

  [[nodiscard]] Interval ratio() const {  // b / a, pair by pair
    std::vector<double> ratios;
    for (std::size_t i = 0; i < a_seconds.size(); ++i) ratios.push_back(b_seconds[i] / a_seconds[i]);
    return median_interval(std::move(ratios));
  }
};

// Times `pairs` pairs after one unrecorded run of each; every second pair runs B first.
template <typename A, typename B>
[[nodiscard]] Pairs interleave(std::size_t pairs, A&& a, B&& b) {
  a();
  b();
  Pairs result;
  for (std::size_t i = 0; i < pairs; ++i) {
    if (i % 2 == 0) {
      result.a_seconds.push_back(seconds_of(a));
      result.b_seconds.push_back(seconds_of(b));
    } else {
      result.b_seconds.push_back(seconds_of(b));
      result.a_seconds.push_back(seconds_of(a));
    }
  }
  return result;
}

// Collects lines, prints them as a table and writes them as JSON.
class Report {
 public:
  explicit Report(std::string title) : title_(std::move(title)) {}

  // `limit` is the largest median ratio that is good enough; 0: the line is for information.
  void add(const std::string& name, const Pairs& pairs, double limit) { lines_.push_back({name, pairs, limit}); }
  // A figure that is not a ratio of times, e.g. an error or a size.
  void add_figure(const std::string& name, double value, const std::string& unit, double limit) {
    figures_.push_back({name, value, unit, limit});
  }

  [[nodiscard]] bool within_limits() const {
    return std::all_of(lines_.begin(), lines_.end(),
                       [](const Line& line) { return line.limit <= 0 || line.pairs.ratio().median <= line.limit; }) &&
           std::all_of(figures_.begin(), figures_.end(),
                       [](const Figure& figure) { return figure.limit <= 0 || figure.value <= figure.limit; });
  }

  void print() const {
    std::printf("%s\n%-28s %10s %10s %8s %20s %7s\n", title_.c_str(), "", "A ms", "B ms", "B/A", "95 % interval",
                "limit");
    for (const Line& line : lines_) {
      const Interval ratio = line.pairs.ratio();
      std::printf("%-28s %10.2f %10.2f %8.3f     [%6.3f, %6.3f] %7s\n", line.name.c_str(),
                  1e3 * median_interval(line.pairs.a_seconds).median,
                  1e3 * median_interval(line.pairs.b_seconds).median, ratio.median, ratio.low, ratio.high,
                  limit_text(line.limit, ratio.median).c_str());
    }
    for (const Figure& figure : figures_) {
      std::printf("%-28s %21.6g %-30s %7s\n", figure.name.c_str(), figure.value, figure.unit.c_str(),
                  limit_text(figure.limit, figure.value).c_str());
    }
  }

  // Returns false when the file cannot be written.
  [[nodiscard]] bool write_json(const std::string& path) const {
    std::ofstream out(path);
    out.precision(9);
    out << "{\"title\": \"" << title_ << "\",\n \"lines\": [";
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      const Interval ratio = line.pairs.ratio();
      out << (i == 0 ? "\n  " : ",\n  ") << "{\"name\": \"" << line.name
          << "\", \"pairs\": " << line.pairs.a_seconds.size()
          << ", \"a_seconds\": " << median_interval(line.pairs.a_seconds).median
          << ", \"b_seconds\": " << median_interval(line.pairs.b_seconds).median << ", \"ratio\": " << ratio.median
          << ", \"low\": " << ratio.low << ", \"high\": " << ratio.high << ", \"limit\": " << line.limit << "}";
    }
    out << "],\n \"figures\": [";
    for (std::size_t i = 0; i < figures_.size(); ++i) {
      const Figure& figure = figures_[i];
      out << (i == 0 ? "\n  " : ",\n  ") << "{\"name\": \"" << figure.name << "\", \"value\": " << figure.value
          << ", \"unit\": \"" << figure.unit << "\", \"limit\": " << figure.limit << "}";
    }
    out << "]}\n";
    out.close();
    return out.good();
  }

 private:
  struct Line {
    std::string name;
    Pairs pairs;
    double limit;
  };
  struct Figure {
    std::string name;
    double value;
    std::string unit;
    double limit;
  };

  [[nodiscard]] static std::string limit_text(double limit, double value) {
    if (limit <= 0) return "";
    char text[32];
    std::snprintf(text, sizeof(text), "%.4g%s", limit, value <= limit ? "" : " !");
    return text;
  }

  std::string title_;
  std::vector<Line> lines_;
  std::vector<Figure> figures_;
};

// The word after `name` on the command line, or `otherwise`.
[[nodiscard]] inline std::string argument(int argc, char** argv, std::string_view name, std::string otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (name == argv[i]) return argv[i + 1];
  }
  return otherwise;
}

// Prints, writes JSON when the command line says `--json FILE`, and gives main()'s exit status.
[[nodiscard]] inline int finish(const Report& report, int argc, char** argv) {
  report.print();
  const std::string path = argument(argc, argv, "--json", "");
  if (!path.empty() && !report.write_json(path)) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    return 2;
  }
  return report.within_limits() ? 0 : 1;
}

}  // namespace collab::bench
