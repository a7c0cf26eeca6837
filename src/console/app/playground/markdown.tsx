/**
 * Renders Markdown of a model. The lexer of marked parses the text, and this file builds elements from
 * the tokens. HTML in the text stays text, and links lead to http(s) only.
 */
import { type Token, type Tokens, lexer } from 'marked';
import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { CodeBlock } from '../parts/code.tsx';
import { SafeLink } from '../parts/values.tsx';

export function Markdown({ text, citations = 0 }: { text: string; citations?: number }) {
  const tokens = useMemo(() => lexer(withReferences(text, citations)), [text, citations]);
  return <div class="prose">{blocks(tokens)}</div>;
}

/** `[REF]0[/REF]` becomes the number of a source below the response. */
function withReferences(text: string, citations: number): string {
  if (citations === 0) return text;
  return text.replaceAll(/\[REF\]([\d,\s]+)\[\/REF\]/g, (_all, numbers: string) =>
    numbers
      .split(',')
      .map((one) => ` \\[${Number(one) + 1}\\]`)
      .join(''),
  );
}

function blocks(tokens: readonly Token[]): ComponentChildren {
  return tokens.map((token, at) => <Block key={at} token={token} />);
}

function Block({ token }: { token: Token }): ComponentChildren {
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading':
      return <p class={`h h${(token as Tokens.Heading).depth}`}>{inline(token.tokens)}</p>;
    case 'code': {
      const { text, lang } = token as Tokens.Code;
      return <CodeBlock title={lang === undefined || lang === '' ? 'code' : lang} text={text} />;
    }
    case 'blockquote':
      return <blockquote>{blocks(token.tokens ?? [])}</blockquote>;
    case 'list':
      return <List list={token as Tokens.List} />;
    case 'table':
      return <TableBlock table={token as Tokens.Table} />;
    case 'hr':
      return <hr />;
    case 'paragraph':
      return <p>{inline(token.tokens)}</p>;
    case 'text':
      return <>{token.tokens === undefined ? token.text : inline(token.tokens)}</>;
    default:
      // HTML is shown as text.
      return <p>{token.raw}</p>;
  }
}

function List({ list }: { list: Tokens.List }) {
  const items = list.items.map((item, at) => (
    <li key={at}>
      {item.task && (item.checked === true ? '☑ ' : '☐ ')}
      {blocks(item.tokens)}
    </li>
  ));
  return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function TableBlock({ table }: { table: Tokens.Table }) {
  return (
    <div class="table" role="region" aria-label="Table" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {table.header.map((cell, at) => (
              <th key={at}>{inline(cell.tokens)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, at) => (
            <tr key={at}>
              {row.map((cell, place) => (
                <td key={place}>{inline(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inline(tokens: readonly Token[] = []): ComponentChildren {
  return tokens.map((token, at) => <Inline key={at} token={token} />);
}

function Inline({ token }: { token: Token }): ComponentChildren {
  switch (token.type) {
    case 'strong':
      return <strong>{inline(token.tokens)}</strong>;
    case 'em':
      return <em>{inline(token.tokens)}</em>;
    case 'del':
      return <del>{inline(token.tokens)}</del>;
    case 'codespan':
      return <code>{token.text}</code>;
    case 'br':
      return <br />;
    case 'link':
      return <SafeLink href={token.href}>{inline(token.tokens)}</SafeLink>;
    case 'image':
      // A link, because loading the image would reveal the reader to another server.
      return <SafeLink href={token.href}>{token.text === '' ? 'image' : token.text}</SafeLink>;
    case 'escape':
      return <>{token.text}</>;
    case 'text': {
      const { tokens, text } = token as Tokens.Text;
      return <>{tokens === undefined ? text : inline(tokens)}</>;
    }
    default:
      return <>{token.raw}</>;
  }
}
