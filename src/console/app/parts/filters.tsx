/** Filters above a list: days and a search field. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { dayBefore } from '../format.ts';
import type { Model } from '../shapes.ts';
import { type Choices, Field, Form, TextField } from './form.tsx';

/** Options of a `Select`; `any` is the label of the first, which filters nothing. */
export function choices(any: string, values: readonly string[]): Choices {
  return [['', any], ...values.map((value) => [value, value] as const)];
}

/** Options for models: the name, and the id if it differs. `chosen`: an id that stays an option. */
export function modelChoices(models: readonly Model[], chosen = ''): Choices {
  const names = new Map(models.map(({ id, model_spec: { name } }) => [id, name]));
  if (chosen !== '' && !names.has(chosen)) names.set(chosen, chosen);
  return [
    ['', 'All models'],
    ...[...names].map(([id, name]) => [id, name === id ? id : `${name} (${id})`] as const),
  ];
}

interface DaysProps {
  readonly from: string;
  readonly to: string;
  readonly change: (changes: { from: string } | { to: string }) => void;
}

/** Whether the year of a day or month is complete: browsers report 2, 20 and 202 while 2026 is typed. */
export function hasYear(date: string): boolean {
  return date === '' || date >= '2000';
}

/** Without a choice, lists show this many days until today. */
export const USUAL_DAYS = 30;

/** The first and the last UTC day; an empty text shows the default. */
export function Days({ from, to, change }: DaysProps) {
  const days = [
    ['from', 'From (UTC)', from || dayBefore(USUAL_DAYS - 1)],
    ['to', 'To (UTC)', to || dayBefore(0)],
  ] as const;
  return (
    <>
      {days.map(([name, label, value]) => (
        <Field key={name} label={label}>
          {(attributes) => (
            <input
              {...attributes}
              type="date"
              value={value}
              onChange={({ currentTarget: { value: day } }) => {
                if (!hasYear(day)) return;
                change(name === 'from' ? { from: day } : { to: day });
              }}
            />
          )}
        </Field>
      ))}
    </>
  );
}

interface SearchFieldProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  readonly onInput: (words: string) => void;
}

export function SearchField(props: SearchFieldProps) {
  return <TextField {...props} type="search" spellcheck={false} />;
}

interface SearchFormProps extends Pick<SearchFieldProps, 'label' | 'placeholder'> {
  /** The initial text of the field. Pass a new `key` to replace what the user typed. */
  readonly words: string;
  readonly find: (words: string) => void;
  readonly children?: ComponentChildren;
}

/** A search field that applies its text when it is submitted. */
export function SearchForm({ words, find, children, ...field }: SearchFormProps) {
  const [typed, setTyped] = useState(words);
  return (
    <Form class="filters" role="search" submit={() => find(typed.trim())}>
      {children}
      <SearchField {...field} value={typed} onInput={setTyped} />
      <button type="submit">Find</button>
    </Form>
  );
}
