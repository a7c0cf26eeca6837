/**
 * The reference page of the configuration, made from the schemas themselves, so that a setting
 * without a line in the page cannot exist.
 */
import { schemaTree, type SchemaNode } from '../../src/config/explain.ts';
import { fileSchema, SECTIONS } from '../../src/config/sections.ts';

const INTRODUCTION = `# Configuration

<!-- prettier-ignore-start -->

_Generated from the schemas by \`npx node scripts/write-reference.ts\`._

Farebox runs without a configuration. What you change goes into one YAML file, \`farebox.yaml\` in the
working directory or the file that \`FAREBOX_CONFIG\` names. Every key is optional unless it says
_required_. An unknown key is an error, and every error names its line. [The commented
example](../../examples/farebox.yaml) shows each section in use.

| environment variable | meaning |
| --- | --- |
| \`FAREBOX_CONFIG\` | the file, instead of \`farebox.yaml\` |
| \`FAREBOX_DATA\` | the data folder, instead of \`data\` |
| \`HOST\`, \`PORT\` | the listen address, instead of \`listen\` |
| \`HTTPS_PROXY\`, \`HTTP_PROXY\`, \`NO_PROXY\` | proxies for upstream requests ([Engines](../operate/engines.md#your-own-engines-and-nodes-behind-a-proxy-or-private-tls)) |

In every text value \`\${NAME}\` stands for an environment variable, \`\${NAME:-default}\` gives a
default, and \`$\${\` is a literal \`\${\`. A variable that is not set is an error, so secrets never
start out empty. Inside \`{ }\` write it in quotes when a formatter touches the file. Relative paths start at the folder of the file.

Amounts are USD with at most 9 decimals. They are taken digit by digit: \`0.1\` is exactly a tenth.

A changed file is taken over while the server runs, as a whole or, when anything in it is wrong, not
at all. Sections marked _restart_ keep their old values until the next start; the log says so.
`;

/** The formatter would pad every table to its longest row; see the start of `INTRODUCTION`. */
const KEEP_END = '<!-- prettier-ignore-end -->';

/** The whole page as Markdown. */
export function configPage(): string {
  const root = schemaTree(fileSchema());
  const parts = Object.entries(SECTIONS).map(([name, section]) => {
    const node = root.properties?.[name] ?? {};
    const change = section.change === 'restart' ? ' _Restart._' : '';
    return `## \`${name}\`\n\n${section.about}${change}\n\n${table(name, node)}`;
  });
  const body = [INTRODUCTION, ...parts].join('\n').trimEnd();
  return `${body}\n\n${KEEP_END}\n`;
}

function table(name: string, node: SchemaNode): string {
  const rows = rowsOf(name, node, false);
  if (rows.length === 0) return '';
  return `| key | value | default | meaning |\n| --- | --- | --- | --- |\n${rows.join('\n')}\n`;
}

function rowsOf(path: string, node: SchemaNode, isRequired: boolean): string[] {
  const properties = Object.entries(node.properties ?? {});
  if (properties.length > 0) {
    const own = node.description === undefined ? [] : [row(path, 'group', '', node.description)];
    const inner = properties.flatMap(([key, child]) =>
      rowsOf(`${path}.${key}`, child, isNeeded(node, key, child)),
    );
    return [...own, ...inner];
  }
  const many =
    node.items ??
    (typeof node.additionalProperties === 'object' ? node.additionalProperties : undefined);
  if (many?.properties !== undefined) {
    const inner = node.items === undefined ? `${path}.<name>` : `${path}[]`;
    const own = node.description === undefined ? [] : [row(path, 'list', '', node.description)];
    return [...own, ...rowsOf(inner, many, false)];
  }
  const fallback = isRequired ? '_required_' : shownDefault(node);
  return [row(path, kindOf(node), fallback, node.description ?? '')];
}

function isNeeded(parent: SchemaNode, key: string, child: SchemaNode): boolean {
  return (parent.required?.includes(key) ?? false) && child.default === undefined;
}

function row(path: string, kind: string, fallback: string, description: string): string {
  const cells = [`\`${path}\``, kind, fallback, description];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;
}

function shownDefault(node: SchemaNode): string {
  if (node.default === undefined) return '';
  return `\`${JSON.stringify(node.default)}\``;
}

function kindOf(node: SchemaNode): string {
  if (node.format === 'usd') return 'USD';
  if (node.enum !== undefined) return node.enum.map((value) => `\`${String(value)}\``).join(' ');
  if (node.items !== undefined) return `list of ${kindOf(node.items)}`;
  if (node.anyOf !== undefined) return node.anyOf.map((option) => kindOf(option)).join(' or ');
  if (typeof node.additionalProperties === 'object') return 'names and values';
  const kinds: Readonly<Record<string, string>> = {
    string: 'text',
    integer: 'whole number',
    number: 'number',
    boolean: '`true` `false`',
    object: 'group',
  };
  return kinds[String(node.type)] ?? 'any';
}
