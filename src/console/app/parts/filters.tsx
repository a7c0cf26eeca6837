/** What narrows a list, in a row above it: days, and words to search for. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { dayBefore } from '../format.ts';
import { Field, Form } from './form.tsx';

/** Values to choose one of, or any of them. */
export function choices(any: string, values: readonly string[]): Choices {
  return [['', any], ...values.map((value) => [value, value] as const)];
}

export type Choices = readonly (readonly [value: string, label: string])[];

interface DaysProps {
  readonly from: string;
  readonly to: string;
  /** How many days are shown where none is chosen; they end today. */
  readonly usualDays: number;
  readonly change: (changes: { from: string } | { to: string }) => void;
}

/** The first and the last UTC day. */
export function Days({ from, to, usualDays, change }: DaysProps) {
  return (
    <>
      <Day
        label="From (UTC)"
        value={from === '' ? dayBefore(usualDays - 1) : from}
        choose={(day) => change({ from: day })}
      />
      <Day
        label="To (UTC)"
        value={to === '' ? dayBefore(0) : to}
        choose={(day) => change({ to: day })}
      />
    </>
  );
}

interface DayProps {
  readonly label: string;
  readonly value: string;
  readonly choose: (day: string) => void;
}

function Day({ label, value, choose }: DayProps) {
  return (
    <Field label={label}>
      {(attributes) => (
        <input
          {...attributes}
          type="date"
          value={value}
          onChange={(event) => choose(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface SearchFieldProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  readonly onInput: (words: string) => void;
}

export function SearchField({ label, placeholder, value, onInput }: SearchFieldProps) {
  return (
    <Field label={label}>
      {(attributes) => (
        <input
          {...attributes}
          type="search"
          spellcheck={false}
          placeholder={placeholder}
          value={value}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface SearchFormProps extends Pick<SearchFieldProps, 'label' | 'placeholder'> {
  /** The initial text of the field. Pass a new `key` to replace what the user typed. */
  readonly words: string;
  readonly find: (words: string) => void;
  readonly children?: ComponentChildren;
}

/** Searches when it is sent. */
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
