//! `top`: a full-screen live view. Draws what `status` and `get` know; a terminal that is
//! resized is drawn anew, and left as it was found, also after a panic.

use std::time::Duration;

use purelb_proto::control::v1 as pb;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};
use tokio::sync::mpsc;

use crate::cli::{Target, TopArgs};
use crate::connect::{Client, refused};
use crate::error::{Failure, Outcome};
use crate::paint::Tone;
use crate::rows;
use crate::status::{self, Status};

/// One look at the daemon.
#[derive(Clone, Debug)]
pub struct Look {
    pub status: Status,
    pub vips: Vec<rows::Vip>,
    pub members: Vec<rows::Member>,
    pub events: Vec<rows::Event>,
}

async fn look(client: &mut Client) -> Outcome<Look> {
    let status = status::ask(client).await?;
    let vips = crate::get::vips(client).await?;
    let members = client.list_members(pb::ListMembersRequest {}).await.map_err(|s| refused(&s))?;
    let events = client.list_events(pb::ListEventsRequest { limit: 50 }).await.map_err(|s| refused(&s))?;
    Ok(Look {
        status,
        vips,
        members: members.into_inner().members.into_iter().map(Into::into).collect(),
        events: events.into_inner().events.into_iter().map(Into::into).collect(),
    })
}

pub async fn run(target: &Target, args: &TopArgs) -> Outcome {
    let mut client = crate::live::one(target).await?;
    let first = look(&mut client).await?;
    let mut terminal = ratatui::try_init().map_err(|e| {
        Failure::new("top needs a terminal").because(e).next("use `purelbctl status --watch` in a pipe")
    })?;
    let ended = follow(&mut terminal, &mut client, first, args.interval).await;
    ratatui::restore();
    ended.map(|()| 0)
}

async fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    client: &mut Client,
    mut now: Look,
    interval: Duration,
) -> Outcome<()> {
    let mut keys = keys();
    let mut scroll = 0_usize;
    let mut trouble = String::new();
    let mut tick = tokio::time::interval(interval.max(Duration::from_millis(100)));
    loop {
        scroll = scroll.min(now.vips.len().saturating_sub(1));
        terminal.draw(|frame| draw(frame, &now, scroll, &trouble))?;
        tokio::select! {
            _ = tick.tick() => match look(client).await {
                Ok(fresh) => {
                    now = fresh;
                    trouble.clear();
                }
                // It may come back: a restart takes a second.
                Err(failure) => trouble = failure.what,
            },
            key = keys.recv() => match key {
                None | Some(Event::Key(event::KeyEvent { code: KeyCode::Char('q') | KeyCode::Esc, .. })) => return Ok(()),
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => match key.code {
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    KeyCode::Down | KeyCode::Char('j') => scroll += 1,
                    KeyCode::Up | KeyCode::Char('k') => scroll = scroll.saturating_sub(1),
                    KeyCode::PageDown | KeyCode::Char(' ') => scroll += 10,
                    KeyCode::PageUp => scroll = scroll.saturating_sub(10),
                    KeyCode::Home => scroll = 0,
                    _ => {}
                },
                // Resized: drawing anew is all it takes.
                Some(_) => {}
            },
        }
    }
}

/// Keys come from a thread: reading a terminal blocks. It ends with the process.
fn keys() -> mpsc::Receiver<Event> {
    let (to, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if to.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

fn style(tone: Option<Tone>) -> Style {
    match tone {
        Some(Tone::Good) => Style::new().fg(Color::Green),
        Some(Tone::Warn) => Style::new().fg(Color::Yellow),
        Some(Tone::Bad) => Style::new().fg(Color::Red),
        Some(Tone::Dim) => Style::new().add_modifier(Modifier::DIM),
        Some(Tone::Strong) => Style::new().add_modifier(Modifier::BOLD),
        None => Style::new(),
    }
}

/// Pure: the same look gives the same screen.
pub fn draw(frame: &mut Frame<'_>, now: &Look, scroll: usize, trouble: &str) {
    let members = u16::try_from(now.members.len()).unwrap_or(u16::MAX).saturating_add(3).min(10);
    let parts = [
        Constraint::Length(3),
        Constraint::Length(members),
        Constraint::Min(5),
        Constraint::Length(7),
        Constraint::Length(1),
    ];
    let [head, who, what, news, foot] = Layout::vertical(parts).areas(frame.area());
    head_line(frame, head, &now.status, trouble);
    list(frame, who, " Members ", &now.members, 0);
    list(frame, what, &format!(" Addresses ({}) ", now.vips.len()), &now.vips, scroll);
    let room = usize::from(news.height.saturating_sub(3));
    let skip = now.events.len().saturating_sub(room);
    list(frame, news, " Events ", &now.events[skip..], 0);
    let keys = " q quit   ↑↓ PgUp PgDn scroll   Home top ";
    frame.render_widget(Paragraph::new(keys).style(style(Some(Tone::Dim))), foot);
}

fn head_line(frame: &mut Frame<'_>, area: Rect, s: &Status, trouble: &str) {
    let tone = match s.health {
        "ok" => Tone::Good,
        "warning" => Tone::Warn,
        _ => Tone::Bad,
    };
    let lease = if s.fence.healthy { format!("lease {:.1}s", s.fence.seconds_left) } else { "FENCED".into() };
    let drained = if s.draining_since.is_empty() { "" } else { "  DRAINED" };
    let mut spans = vec![
        Span::styled(s.node.clone(), style(Some(Tone::Strong))),
        Span::raw("  "),
        Span::styled(s.health, style(Some(tone))),
        Span::raw(format!("  {lease}  {}/{} members  {} held{drained}", s.live_members, s.members, s.held)),
    ];
    if !trouble.is_empty() {
        spans.push(Span::styled(format!("  {trouble}"), style(Some(Tone::Bad))));
    } else if let Some(first) = s.problems.first() {
        spans.push(Span::styled(format!("  {}: {}", first.object, first.message), style(Some(Tone::Warn))));
    }
    let block = Block::bordered().title(format!(" purelb {} ", s.version));
    frame.render_widget(Paragraph::new(Line::from(spans)).block(block), area);
}

fn list<R: crate::table::Row>(frame: &mut Frame<'_>, area: Rect, title: &str, rows: &[R], scroll: usize) {
    let lines = crate::table::lines(rows, crate::cli::Format::Table, true);
    let widths = crate::table::widths(&lines);
    let constraints =
        widths.iter().map(|w| Constraint::Length(u16::try_from(*w).unwrap_or(u16::MAX).saturating_add(1)));
    let shown = |line: &Vec<crate::table::Cell>| {
        Row::new(line.iter().map(|c| Cell::new(c.text.clone()).style(style(c.tone))).collect::<Vec<_>>())
    };
    let mut lines = lines.iter();
    let head = lines.next().map(&shown).unwrap_or_default();
    let body: Vec<Row<'_>> = lines.skip(scroll).map(shown).collect();
    let table = Table::new(body, constraints).header(head).block(Block::bordered().title(title.to_owned()));
    frame.render_widget(table, area);
}
