/** HTML by hand: everything that is not markup of ours is escaped. */

/** Markup that is safe to put into a page. */
export interface Html {
  readonly html: string;
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

export function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ESCAPES[character] ?? character);
}

type Part = Html | string | number | undefined | false | readonly Part[];

/** Tagged template: texts are escaped, `Html` and lists of it are not. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  const pieces = strings.map((text, at) => text + render(parts[at]));
  return { html: pieces.join('') };
}

function render(part: Part): string {
  if (part === undefined || part === false) return '';
  if (typeof part === 'string') return escapeHtml(part);
  if (typeof part === 'number') return String(part);
  // A list is what is left when it is not markup.
  if (Array.isArray(part)) return (part as readonly Part[]).map(render).join('');
  return (part as Html).html;
}

/** Paragraphs, `code` and **bold** of a description. */
export function prose(text: string): Html {
  const paragraphs = text.split(/\n{2,}/).map((paragraph) => `<p>${inline(paragraph)}</p>`);
  return { html: paragraphs.join('') };
}

/** `code` and **bold** inside a line. */
export function inline(text: string): string {
  return escapeHtml(text)
    .replaceAll(/`([^`]+)`/g, '<code>$1</code>')
    .replaceAll(/\*\*([^*]+)\*\*/g, '<strong>$1</strong>');
}

export function line(text: string): Html {
  return { html: inline(text) };
}
