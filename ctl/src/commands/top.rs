//! `top`: a full-screen live view. Draws what `status` and `get` know; a terminal that is
//! resized is drawn anew, and left as it was found, also after a panic.

use std::time::Duration;

use clap::Args;
use purelb_core::durations;
use purelb_proto::control::v1 as pb;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};
use tokio::sync::mpsc;

use crate::cli::TargetArgs;
use crate::client::daemon_client::{DaemonClient, call_error};
use crate::client::daemon_connection::connect_one;
use crate::commands::get;
use crate::commands::status::{self, NodeStatus};
use crate::error::{CommandError, CommandResult};
use crate::output::rows;
use crate::output::text_painter::TextTone;

#[derive(Debug, Args)]
pub struct TopArgs {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = durations::parse)]
    pub interval: Duration,
}

/// All that one screen shows, fetched together.
#[derive(Clone, Debug)]
pub struct NodeSnapshot {
    pub status: NodeStatus,
    pub vips: Vec<rows::VipRow>,
    pub members: Vec<rows::MemberRow>,
    pub events: Vec<rows::EventRow>,
}

async fn fetch_snapshot(client: &mut DaemonClient) -> CommandResult<NodeSnapshot> {
    let status = status::fetch_status(client).await?;
    let vips = get::list_vips(client).await?;
    let members = client.list_members(pb::ListMembersRequest {}).await.map_err(|s| call_error(&s))?;
    let events = client.list_events(pb::ListEventsRequest { limit: 50 }).await.map_err(|s| call_error(&s))?;
    Ok(NodeSnapshot {
        status,
        vips,
        members: members.into_inner().members.into_iter().map(Into::into).collect(),
        events: events.into_inner().events.into_iter().map(Into::into).collect(),
    })
}

pub async fn run(target: &TargetArgs, args: &TopArgs) -> CommandResult {
    let mut client = connect_one(target).await?;
    let first = fetch_snapshot(&mut client).await?;
    let mut terminal = ratatui::try_init().map_err(|e| {
        CommandError::new("top needs a terminal").because(e).next("use `purelbctl status --watch` in a pipe")
    })?;
    let ended = follow(&mut terminal, &mut client, first, args.interval).await;
    ratatui::restore();
    ended.map(|()| 0)
}

async fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    client: &mut DaemonClient,
    mut now: NodeSnapshot,
    interval: Duration,
) -> CommandResult<()> {
    let mut keys = read_keys();
    let mut scroll = 0_usize;
    let mut trouble = String::new();
    let mut tick = tokio::time::interval(interval.max(Duration::from_millis(100)));
    loop {
        scroll = scroll.min(now.vips.len().saturating_sub(1));
        terminal.draw(|frame| draw(frame, &now, scroll, &trouble))?;
        tokio::select! {
            _ = tick.tick() => match fetch_snapshot(client).await {
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
fn read_keys() -> mpsc::Receiver<Event> {
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

fn style_of(tone: Option<TextTone>) -> Style {
    match tone {
        Some(TextTone::Good) => Style::new().fg(Color::Green),
        Some(TextTone::Warn) => Style::new().fg(Color::Yellow),
        Some(TextTone::Bad) => Style::new().fg(Color::Red),
        Some(TextTone::Dim) => Style::new().add_modifier(Modifier::DIM),
        Some(TextTone::Strong) => Style::new().add_modifier(Modifier::BOLD),
        None => Style::new(),
    }
}

/// The same snapshot gives the same screen.
pub fn draw(frame: &mut Frame<'_>, now: &NodeSnapshot, scroll: usize, trouble: &str) {
    let members = u16::try_from(now.members.len()).unwrap_or(u16::MAX).saturating_add(3).min(10);
    let parts = [
        Constraint::Length(3),
        Constraint::Length(members),
        Constraint::Min(5),
        Constraint::Length(7),
        Constraint::Length(1),
    ];
    let [head, who, what, news, foot] = Layout::vertical(parts).areas(frame.area());
    draw_head(frame, head, &now.status, trouble);
    draw_list(frame, who, " Members ", &now.members, 0);
    draw_list(frame, what, &format!(" Addresses ({}) ", now.vips.len()), &now.vips, scroll);
    let room = usize::from(news.height.saturating_sub(3));
    let skip = now.events.len().saturating_sub(room);
    draw_list(frame, news, " Events ", &now.events[skip..], 0);
    let keys = " q quit   ↑↓ PgUp PgDn scroll   Home top ";
    frame.render_widget(Paragraph::new(keys).style(style_of(Some(TextTone::Dim))), foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, s: &NodeStatus, trouble: &str) {
    let tone = match s.health {
        "ok" => TextTone::Good,
        "warning" => TextTone::Warn,
        _ => TextTone::Bad,
    };
    let lease = if s.fence.healthy { format!("lease {:.1}s", s.fence.seconds_left) } else { "FENCED".into() };
    let drained = if s.draining_since.is_empty() { "" } else { "  DRAINED" };
    let mut spans = vec![
        Span::styled(s.node.clone(), style_of(Some(TextTone::Strong))),
        Span::raw("  "),
        Span::styled(s.health, style_of(Some(tone))),
        Span::raw(format!("  {lease}  {}/{} members  {} held{drained}", s.live_members, s.members, s.held)),
    ];
    if !trouble.is_empty() {
        spans.push(Span::styled(format!("  {trouble}"), style_of(Some(TextTone::Bad))));
    } else if let Some(first) = s.problems.first() {
        spans.push(Span::styled(
            format!("  {}: {}", first.object, first.message),
            style_of(Some(TextTone::Warn)),
        ));
    }
    let block = Block::bordered().title(format!(" purelb {} ", s.version));
    frame.render_widget(Paragraph::new(Line::from(spans)).block(block), area);
}

fn draw_list<R: crate::output::table::TableRow>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    rows: &[R],
    scroll: usize,
) {
    let lines = crate::output::table::table_lines(rows, crate::cli::OutputFormat::Table, true);
    let widths = crate::output::table::column_widths(&lines);
    let constraints =
        widths.iter().map(|w| Constraint::Length(u16::try_from(*w).unwrap_or(u16::MAX).saturating_add(1)));
    let shown = |line: &Vec<crate::output::table::TableCell>| {
        Row::new(line.iter().map(|c| Cell::new(c.text.clone()).style(style_of(c.tone))).collect::<Vec<_>>())
    };
    let mut lines = lines.iter();
    let head = lines.next().map(&shown).unwrap_or_default();
    let body: Vec<Row<'_>> = lines.skip(scroll).map(shown).collect();
    let table = Table::new(body, constraints).header(head).block(Block::bordered().title(title.to_owned()));
    frame.render_widget(table, area);
}
