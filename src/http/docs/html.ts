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

/**
 * Tagged template: texts are escaped, `Html` and lists of it are not. The indentation of the source
 * is not sent.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  const pieces = strings.map((text, at) => text.replaceAll(/\n\s*/g, ' ') + render(parts[at]));
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

/** Paragraphs, lists, `code`, **bold** and links of a description. */
export function prose(text: string): Html {
  return {
    html: text
      .split(/\n{2,}/)
      .map(block)
      .join(''),
  };
}

/** A paragraph, or a list when each of its lines begins with a dash. */
function block(text: string): string {
  const lines = text.split('\n');
  if (!lines.every((one) => one.startsWith('- '))) return `<p>${inline(text)}</p>`;
  return `<ul>${lines.map((one) => `<li>${inline(one.slice(2))}</li>`).join('')}</ul>`;
}

/** `code`, **bold** and links inside a line; what stands in `code` is left as it is. */
export function inline(text: string): string {
  return escapeHtml(text)
    .split(/(`[^`]+`)/)
    .map((part) => (/^`[^`]+`$/.test(part) ? `<code>${part.slice(1, -1)}</code>` : words(part)))
    .join('');
}

function words(escaped: string): string {
  return escaped
    .replaceAll(/\*\*([^*]+)\*\*/g, '<strong>$1</strong>')
    .replaceAll(/\[([^\]]+)\]\((https?:\/\/[^\s)]+|\/[^\s)]*|#[^\s)]+)\)/g, '<a href="$2">$1</a>');
}

export function line(text: string): Html {
  return { html: inline(text) };
}
