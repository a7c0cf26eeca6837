/**
 * A form for a value of the configuration, made from its JSON schema: one field for each setting. A value of a kind that
 * has no field, such as one of several objects, is edited as JSON.
 */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Select, TextArea, TextField } from '../parts/form.tsx';

/** The parts of a JSON schema that the form reads. */
export interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly required?: readonly string[];
  readonly format?: string;
}

interface FieldProps {
  readonly name: string;
  readonly schema: Schema;
  /** `undefined` if the file does not have it. */
  readonly value: unknown;
  readonly onChange: (value: unknown) => void;
}

type Members = Readonly<Record<string, unknown>>;

export function SchemaField(props: FieldProps) {
  const { name, schema, value, onChange } = props;
  const hint = hintOf(schema);
  if (schema.enum !== undefined || schema.type === 'boolean') return <ChoiceField {...props} />;
  if (schema.properties !== undefined) {
    return (
      <Group name={name} hint={hint}>
        <SchemaMembers schema={schema} value={membersOf(value)} onChange={onChange} />
      </Group>
    );
  }
  if (typeof schema.additionalProperties === 'object') {
    return (
      <Group name={name} hint={hint}>
        <NamedEntries {...props} of={schema.additionalProperties} />
      </Group>
    );
  }
  const { items } = schema;
  if (schema.type === 'array' && items?.properties !== undefined) {
    return (
      <Group name={name} hint={hint}>
        <ListEntries {...props} of={items} />
      </Group>
    );
  }
  if (schema.type === 'array' && items?.type === 'string') return <LinesField {...props} />;
  if (schema.type === 'string' || isNumber(schema)) return <LineField {...props} />;
  return <JsonField {...props} />;
}

/** The settings of an object: those that are set or required, and the rest below a heading. */
function SchemaMembers({
  schema,
  value,
  onChange,
}: {
  readonly schema: Schema;
  readonly value: Members;
  readonly onChange: (value: unknown) => void;
}) {
  // A setting keeps its place while it is edited.
  const [first] = useState(() => new Set([...Object.keys(value), ...(schema.required ?? [])]));
  const fields = Object.entries(schema.properties ?? {});
  const show = ([name, member]: readonly [string, Schema]) => (
    <SchemaField
      key={name}
      name={name}
      schema={member}
      value={value[name]}
      onChange={(next) => onChange(withMember(value, name, next))}
    />
  );
  const shown = fields.filter(([name]) => first.has(name));
  const others = fields.filter(([name]) => !first.has(name));
  return (
    <>
      {shown.map(show)}
      {others.length > 0 && (
        <details open={shown.length === 0}>
          <summary>
            {others.length} more {others.length === 1 ? 'setting' : 'settings'}
          </summary>
          {others.map(show)}
        </details>
      )}
    </>
  );
}

function NamedEntries({ name, value, onChange, of }: FieldProps & { readonly of: Schema }) {
  const entries = Object.entries(membersOf(value));
  const [added, setAdded] = useState('');
  const isTaken = entries.some(([one]) => one === added.trim());
  return (
    <>
      {entries.map(([one, entry]) => (
        <Entry
          key={one}
          title={one}
          schema={of}
          value={entry}
          onChange={(next) => onChange({ ...membersOf(value), [one]: next })}
          remove={() => onChange(withMember(membersOf(value), one, undefined))}
        />
      ))}
      <div class="fields-row">
        <TextField label={`Name of a new entry of ${name}`} value={added} onInput={setAdded} />
        <button
          type="button"
          disabled={added.trim() === '' || isTaken}
          onClick={() => {
            onChange({ ...membersOf(value), [added.trim()]: emptyOf(of) });
            setAdded('');
          }}
        >
          Add
        </button>
      </div>
    </>
  );
}

function ListEntries({ name, value, onChange, of }: FieldProps & { readonly of: Schema }) {
  const entries: readonly unknown[] = Array.isArray(value) ? value : [];
  const replace = (at: number, next: readonly unknown[]): void =>
    onChange([...entries.slice(0, at), ...next, ...entries.slice(at + 1)]);
  return (
    <>
      {entries.map((entry, at) => (
        <Entry
          key={`${at} of ${entries.length}`}
          title={titleOf(entry, at)}
          schema={of}
          value={entry}
          onChange={(next) => replace(at, [next])}
          remove={() => replace(at, [])}
        />
      ))}
      <p>
        <button type="button" onClick={() => onChange([...entries, emptyOf(of)])}>
          Add to {name}
        </button>
      </p>
    </>
  );
}

interface EntryProps extends Omit<FieldProps, 'name'> {
  readonly title: string;
  readonly remove: () => void;
}

function Entry({ title, schema, value, onChange, remove }: EntryProps) {
  // A new entry is open.
  const [isNew] = useState(() => Object.keys(membersOf(value)).length === 0);
  return (
    <details class="entry" open={isNew}>
      <summary>{title}</summary>
      {schema.properties === undefined ? (
        <SchemaField name={title} schema={schema} value={value} onChange={onChange} />
      ) : (
        <SchemaMembers schema={schema} value={membersOf(value)} onChange={onChange} />
      )}
      <p>
        <button type="button" class="danger" onClick={remove}>
          Remove {title}
        </button>
      </p>
    </details>
  );
}

function Group({
  name,
  hint,
  children,
}: {
  readonly name: string;
  readonly hint: string;
  readonly children: ComponentChildren;
}) {
  return (
    <fieldset class="settings">
      <legend>{name}</legend>
      {hint !== '' && <p class="hint">{hint}</p>}
      {children}
    </fieldset>
  );
}

function ChoiceField({ name, schema, value, onChange }: FieldProps) {
  const values = schema.enum ?? [true, false];
  return (
    <Select
      label={name}
      hint={hintOf(schema)}
      value={shownText(value)}
      options={[['', 'Default'], ...values.map((one) => [String(one), String(one)] as const)]}
      onInput={(text) => onChange(values.find((one) => String(one) === text))}
    />
  );
}

/** Keeps what is typed and not in the value, such as a space at the end. */
function useText(initial: string, change: (text: string) => void) {
  const [value, setValue] = useState(initial);
  const onInput = (text: string): void => {
    setValue(text);
    change(text);
  };
  return { value, onInput };
}

function LineField({ name, schema, value, onChange }: FieldProps) {
  const parse = isNumber(schema) ? numberOf : textOf;
  const text = useText(shownText(value), (next) => onChange(parse(next)));
  const kind = isNumber(schema) ? ({ inputMode: 'decimal' } as const) : {};
  return <TextField {...text} {...kind} label={name} hint={hintOf(schema)} />;
}

function LinesField({ name, schema, value, onChange }: FieldProps) {
  const lines: readonly unknown[] = Array.isArray(value) ? value : [];
  const text = useText(lines.join('\n'), (next) => {
    const given = next.split('\n').flatMap((line) => textOf(line) ?? []);
    onChange(given.length === 0 ? undefined : given);
  });
  return (
    <TextArea
      {...text}
      label={name}
      hint={`One per line. ${hintOf(schema)}`}
      rows={Math.min(8, Math.max(2, lines.length + 1))}
    />
  );
}

function JsonField({ name, schema, value, onChange }: FieldProps) {
  const [problem, setProblem] = useState<string>();
  const initial = value === undefined ? '' : JSON.stringify(value, undefined, 2);
  const text = useText(initial, (next) => {
    const parsed = jsonOf(next);
    setProblem(parsed === NO_JSON ? 'This is not valid JSON yet.' : undefined);
    if (parsed !== NO_JSON) onChange(parsed);
  });
  return (
    <TextArea
      {...text}
      label={`${name} (JSON)`}
      hint={hintOf(schema)}
      problem={problem}
      class="code"
      rows={Math.min(14, text.value.split('\n').length + 1)}
    />
  );
}

function isNumber({ type, format }: Schema): boolean {
  return type === 'number' || type === 'integer' || format === 'usd';
}

const NO_JSON = Symbol('no JSON');

function jsonOf(text: string): unknown {
  if (text.trim() === '') return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // The field shows it.
    return NO_JSON;
  }
}

/** Descriptions of settings mark names as code. */
export function plainText(description: string): string {
  return description.replaceAll('`', '');
}

function hintOf({ description = '', default: usual }: Schema): string {
  const text = plainText(description);
  const isShown = usual === undefined || typeof usual === 'object' || /\bDefault:/.test(text);
  return isShown ? text : `${text} Default: ${shownText(usual)}.`.trim();
}

function shownText(value: unknown): string {
  if (value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Members)
    : {};
}

/** Without the member if it is `undefined`. */
function withMember(value: Members, name: string, member: unknown): Members {
  const { [name]: _old, ...rest } = value;
  if (member === undefined) return rest;
  return Object.hasOwn(value, name) ? { ...value, [name]: member } : { ...rest, [name]: member };
}

function emptyOf({ type, properties }: Schema): unknown {
  return type === 'object' || properties !== undefined ? {} : '';
}

function titleOf(entry: unknown, at: number): string {
  const { id, name, engine, url } = membersOf(entry);
  const given = id ?? name ?? engine ?? url;
  return typeof given === 'string' && given !== '' ? given : `Entry ${at + 1}`;
}

function textOf(text: string): string | undefined {
  return text.trim() === '' ? undefined : text.trim();
}

/** The number; other texts, such as a variable, stay for the server to check. */
function numberOf(text: string): number | string | undefined {
  const trimmed = textOf(text);
  if (trimmed === undefined) return undefined;
  const number = Number(trimmed);
  return Number.isFinite(number) && String(number) === trimmed ? number : trimmed;
}
