//! Tables of aligned columns. Widths are those of a terminal: a letter of Chinese or an emoji has two cells.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Space between two columns.
const GAP: &str = "  ";
/// Smallest width to which a column is cut, in cells of a terminal.
const NARROWEST: usize = 12;
/// Largest width to which a column is padded, in cells of a terminal; longer texts exceed it.
const WIDEST: usize = 120;

/// Columns that a narrow terminal does not show, the least important one first.
const LEFT_OUT: [&str; 9] =
    ["ERRORS", "TOOLS", "MODEL", "TOOK", "TOKENS", "SEEN", "STARTED", "COST", "OUTCOME"];

/// Lays cells out in columns, the header first. With a width, such as that of a terminal, columns are cut until a line
/// fits: the last one first, never the first one, which holds names to be typed. If that is not enough, some columns
/// are left out. The last column is not padded.
pub(super) fn lay_out(header: &[&str], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    let mut table: Vec<Vec<String>> = std::iter::once(header).chain(rows.iter().cloned()).collect();
    let mut widths = widths(&table);
    if let Some(width) = width {
        for name in std::iter::once("").chain(LEFT_OUT) {
            leave_out(&mut table, name);
            widths = self::widths(&table);
            if narrow(&mut widths, width) {
                break;
            }
        }
    }
    table.iter().map(|row| line(row, &widths, width.is_some())).collect()
}

fn leave_out(table: &mut [Vec<String>], name: &str) {
    let place = table.first().and_then(|header| header.iter().position(|known| known == name));
    let Some(column) = place.filter(|column| *column > 0) else { return };
    for row in table.iter_mut().filter(|row| row.len() > column) {
        row.remove(column);
    }
}

/// Returns the width of the longest cell of each column.
fn widths(table: &[Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in table {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    widths
}

/// Narrows the last column, which holds text, then the widest ones, until they fit or none can be narrower; returns
/// whether they fit.
fn narrow(widths: &mut [usize], width: usize) -> bool {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    if let Some(last) = widths.iter_mut().skip(1).next_back() {
        *last -= excess.min(last.saturating_sub(NARROWEST));
    }
    loop {
        let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
        if excess == 0 {
            return true;
        }
        let mut others = widths.iter_mut().skip(1).collect::<Vec<_>>();
        others.sort_unstable_by(|one, other| other.cmp(one));
        let next = others.get(1).map_or(0, |width| **width).max(NARROWEST);
        let Some(widest) = others.into_iter().next().filter(|width| **width > NARROWEST) else {
            return false;
        };
        // To the next widest at most, but by at least one: columns of equal width are cut in turn.
        *widest -= excess.min(widest.saturating_sub(next).max(1));
    }
}

fn line(row: &[String], widths: &[usize], is_cut: bool) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        if column > 0 {
            line.push_str(GAP);
        }
        let length = match is_cut && cell.width() > *width {
            true => {
                let kept = cut(cell, width.saturating_sub(1));
                line.push_str(kept);
                line.push('…');
                kept.width() + 1
            }
            false => {
                line.push_str(cell);
                cell.width()
            }
        };
        let padding = (*width).min(WIDEST).saturating_sub(length);
        line.extend(std::iter::repeat_n(' ', padding));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns the beginning of a text that has at most so many cells.
fn cut(text: &str, cells: usize) -> &str {
    let mut left = cells;
    let end = text.char_indices().find(|(_, c)| match left.checked_sub(c.width().unwrap_or(0)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    end.map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cells: &[&[&str]]) -> Vec<Vec<String>> {
        cells.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect()
    }

    /// Spec: C2
    #[test]
    fn columns_are_aligned_and_not_cut() {
        let rows = rows(&[&["run_1", "ok", "a"], &["run_22", "failed", ""]]);
        let lines = lay_out(&["RUN", "STATE", "WHY"], &rows, None);
        assert_eq!(lines, ["RUN     STATE   WHY", "run_1   ok      a", "run_22  failed"]);
    }

    /// Spec: C2
    #[test]
    fn lines_fit_where_columns_can_be_cut() {
        let long = "x".repeat(300);
        let rows = rows(&[&["run_0123456789", "finished", &long, &long, "12", "34"]]);
        let header = ["RUN", "STATE", "AGENT", "REASON", "TOKENS", "MODEL"];
        for width in [53, 80, 120, 700] {
            let lines = lay_out(&header, &rows, Some(width));
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            assert!(lines[1].starts_with("run_0123456789  finished  x"), "{lines:?}");
            assert_eq!(lines[0].ends_with("TOKENS  MODEL"), width > 53, "{lines:?}");
        }
        // In a smaller width, the terminal wraps the line.
        let lines = lay_out(&header, &rows, Some(10));
        assert_eq!(lines[1], "run_0123456789  finished  xxxxxxxxxxx…  xxxxxxxxxxx…");
    }

    /// Spec: C2
    #[test]
    fn wide_characters_keep_columns_aligned() {
        let names =
            ["plain", "会話", "日本語のとても長い名前", "😀 👩‍👩‍👧", "e\u{301}e\u{301}", "한국어"];
        let rows: Vec<Vec<String>> =
            names.iter().map(|name| vec![(*name).to_owned(), "next".to_owned()]).collect();
        for width in [None, Some(30)] {
            let rows = rows.iter().map(|row| match width {
                None => row.clone(),
                Some(_) => vec!["id".to_owned(), row[0].clone(), row[1].clone()],
            });
            let rows: Vec<_> = rows.collect();
            let header: &[&str] = if width.is_none() { &["A", "B"] } else { &["ID", "A", "B"] };
            let lines = lay_out(header, &rows, width);
            let column = lines[0].find('B').unwrap();
            for line in &lines[1..] {
                let next = line.find("next").unwrap();
                assert_eq!(line[..next].width(), column, "{lines:#?}");
                assert!(width.is_none_or(|width| line.width() <= width), "{lines:#?}");
            }
        }
        let lines = lay_out(&["ID", "A"], &[vec!["x".to_owned(), "会".repeat(50)]], Some(20));
        assert!(lines[1].ends_with("会…") && lines[1].width() <= 20, "{lines:#?}");
    }

    /// Spec: C2
    #[test]
    fn cell_of_a_megabyte_pads_no_other() {
        let rows = rows(&[&["a", &"x".repeat(1 << 20), "b"], &["c", "y", "d"]]);
        let lines = lay_out(&["A", "B", "C"], &rows, None);
        assert!(lines[1].len() > 1 << 20 && lines[1].ends_with("x  b"));
        assert!(lines[2].len() < 200, "{}", lines[2].len());
    }
}
