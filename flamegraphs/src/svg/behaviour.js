(() => {
  'use strict';
  const byId = (id) => document.getElementById(id);
  const holder = byId('frames').firstElementChild;
  const details = byId('details');
  const hint = details.textContent;
  const frames = Array.from(holder.children, (element) => {
    const title = element.firstElementChild.textContent;
    return {
      element,
      title,
      name: title.slice(0, title.indexOf('\n')),
      x: parseFloat(element.getAttribute('x')),
      width: parseFloat(element.getAttribute('width')),
      y: parseFloat(element.getAttribute('y')),
      text: element.querySelector('text'),
      shown: true,
      now: 0,
    };
  });
  for (const frame of frames) frame.element.frame = frame;
  const all = frames[0];
  let zoomed = all;

  const probe = document.createElementNS(all.element.namespaceURI, 'text');
  probe.textContent = 'm'.repeat(100);
  all.element.append(probe);
  const character = probe.getComputedTextLength() / 100 || 6.6;
  probe.remove();

  function fit() {
    const whole = holder.getBoundingClientRect().width;
    for (const frame of frames) {
      if (!frame.shown) continue;
      const room = Math.floor((frame.now / 100 * whole - 6) / character);
      const text = room < 3 ? '' : room < frame.name.length ? frame.name.slice(0, room - 1) + '…' : frame.name;
      if (!frame.text && text) {
        frame.text = document.createElementNS(all.element.namespaceURI, 'text');
        frame.text.setAttribute('x', 3);
        frame.text.setAttribute('y', 12);
        frame.element.append(frame.text);
      }
      if (frame.text && frame.text.textContent !== text) frame.text.textContent = text;
    }
  }

  function zoom(target) {
    zoomed = target;
    const scale = 100 / target.width;
    // Positions are rounded to a ten-thousandth of a percent.
    const slack = 0.0002 * scale;
    for (const frame of frames) {
      const from = (frame.x - target.x) * scale;
      const to = from + frame.width * scale;
      const above = frame.y < target.y;
      frame.shown = above ? from <= slack && to >= 100 - slack
        : to > slack && from < 100 - slack && (target === all || to - from > 0.01);
      frame.element.classList.toggle('hidden', !frame.shown);
      frame.element.classList.toggle('above', above && frame.shown);
      if (!frame.shown) continue;
      const left = Math.max(from, 0);
      frame.now = Math.min(to, 100) - left;
      frame.element.setAttribute('x', left + '%');
      frame.element.setAttribute('width', frame.now + '%');
    }
    byId('reset').classList.toggle('hidden', target === all);
    fit();
  }

  function mark(test, what) {
    let share = 0;
    let end = -1;
    let some = false;
    for (const frame of frames) {
      const match = test !== null && frame !== all && test(frame);
      frame.element.classList.toggle('m', match);
      some = some || match;
      // What lies inside a match is counted with it. Frames come callers first, from left to right.
      if (match && frame.x >= end - 0.0002) {
        share += frame.width;
        end = frame.x + frame.width;
      }
    }
    holder.classList.toggle('some', some);
    byId('matched').textContent = test === null ? '' : some ? `${what}: ${share.toFixed(1)}% with callees` : `${what}: no frame`;
  }

  function search() {
    const text = prompt('Search names and paths (a regular expression)', '');
    if (text === null) return;
    if (text === '') return mark(null);
    let pattern;
    try {
      pattern = new RegExp(text, 'i');
    } catch (error) {
      byId('matched').textContent = String(error.message);
      return;
    }
    mark((frame) => pattern.test(frame.title.slice(0, frame.title.lastIndexOf('\n'))), text);
  }

  const frameOf = (event) => event.target.closest('.f')?.frame;
  holder.addEventListener('click', (event) => {
    const frame = frameOf(event);
    if (frame) zoom(frame);
  });
  holder.addEventListener('mouseover', (event) => {
    const frame = frameOf(event);
    details.textContent = frame ? frame.title.replace(/\n/g, ' · ') : hint;
  });
  holder.addEventListener('mouseleave', () => { details.textContent = hint; });
  let marked = null;
  byId('legend').addEventListener('click', (event) => {
    const kind = event.target.closest('.entry')?.dataset.kind;
    if (!kind) return;
    marked = marked === kind ? null : kind;
    mark(marked && ((frame) => frame.element.classList.contains(kind)), event.target.closest('.entry').lastElementChild.firstChild.textContent);
  });
  byId('search').addEventListener('click', search);
  byId('reset').addEventListener('click', () => zoom(all));
  window.addEventListener('keydown', (event) => {
    if (event.key === '/' || ((event.ctrlKey || event.metaKey) && event.key === 'f')) {
      event.preventDefault();
      search();
    } else if (event.key === 'Escape') {
      if (holder.classList.contains('some')) { marked = null; mark(null); } else zoom(all);
    }
  });
  window.addEventListener('resize', fit);
  byId('tools').classList.remove('hidden');
  zoom(all);
})();
