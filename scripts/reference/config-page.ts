/** Generates the reference page of the configuration from its schemas. */
import { schemaTree, type SchemaNode } from '../../src/config/explain.ts';
import { fileSchema, SECTIONS } from '../../src/config/sections.ts';

const INTRODUCTION = `# Configuration

<!-- prettier-ignore-start -->

_Generated from the schemas by \`npx node scripts/write-reference.ts\`._

This page lists every setting, with its default. Farebox runs without a configuration file. To change settings,
write them to \`farebox.yaml\` in the working directory, or to the file in \`FAREBOX_CONFIG\`. Every key is optional
unless its default says _required_. An unknown key is an error. \`farebox check\` reports each error with its line.
The [commented example](../../examples/farebox.yaml) uses every section.

| environment variable | meaning |
| --- | --- |
| \`FAREBOX_CONFIG\` | the file, instead of \`farebox.yaml\` |
| \`FAREBOX_DATA\` | the data folder, instead of \`data\` |
| \`HOST\`, \`PORT\` | the listen address, instead of \`listen\` |
| \`HTTPS_PROXY\`, \`HTTP_PROXY\`, \`NO_PROXY\` | proxies for upstream requests ([Engines](../operate/engines.md#your-own-engines-and-nodes-behind-a-proxy-or-private-tls)) |

- **Variables.** In a text value, \`\${NAME}\` is replaced by the environment variable, and \`\${NAME:-default}\`
  by the default if the variable is not set. A variable without a value and a default is an error. \`$\${\` is a
  literal \`\${\`. Quote such a value inside \`{ }\`, because formatters split it.
- **Empty settings.** A setting without a value, such as \`recipient:\`, is an error; a section or list can be empty.
- **Paths.** Relative paths start at the folder of the configuration file.
- **Amounts** are decimal USD with at most 9 decimals and are exact: \`0.1\` is one tenth.
- **Changes.** A running server reads the changed file and applies all of it, or nothing if it has an error or is missing.
  Sections marked _Restart_ keep their values until the next start, and the log names them.
`;

/** Ends the part that the formatter skips; it would pad every table to its longest row. */
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
