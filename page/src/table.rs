//! Tables of text.

use std::fmt::{self, Write};

use crate::text::escape;

/// Writes a table whose headings and cells are plain text; a wide one scrolls by itself.
pub fn table<R>(
    out: &mut String,
    headings: &[impl AsRef<str>],
    rows: impl IntoIterator<Item = R>,
) -> fmt::Result
where
    R: IntoIterator<Item: AsRef<str>>,
{
    out.push_str("<div class=\"wide\"><table><tr>");
    for heading in headings {
        write!(out, "<th>{}</th>", escape(heading.as_ref()))?;
    }
    out.push_str("</tr>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            write!(out, "<td>{}</td>", escape(cell.as_ref()))?;
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_and_cells_are_text_and_not_markup() {
        let mut out = String::new();
        table(&mut out, &["a < b"], [["1 & 2"], ["3"]]).unwrap();
        assert!(out.contains("<th>a &lt; b</th></tr><tr><td>1 &amp; 2</td></tr>"), "{out}");
        assert!(out.ends_with("<tr><td>3</td></tr></table></div>"), "{out}");
    }
}
