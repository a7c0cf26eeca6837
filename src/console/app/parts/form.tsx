/** Forms: fields with label, hint and error, and the actions of their buttons. */
import type { ComponentChildren, JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { ApiError } from '../api.ts';
import { announce } from './announce.tsx';

interface FieldProps {
  readonly label: string;
  readonly hint?: ComponentChildren;
  readonly problem?: string | undefined;
  readonly children: (attributes: { id: string; 'aria-describedby': string }) => JSX.Element;
}

export function Field({ label, hint, problem, children }: FieldProps) {
  const id = useId();
  const about = `${id}-about`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, 'aria-describedby': about })}
      <p id={about} class={problem === undefined ? 'hint' : 'hint bad'}>
        {problem ?? hint}
      </p>
    </div>
  );
}

interface TextFieldProps extends Pick<FieldProps, 'label' | 'hint' | 'problem'> {
  readonly value: string;
  readonly onInput: (value: string) => void;
  readonly type?: 'text' | 'date' | 'month' | 'number' | 'password' | 'search' | 'url';
  readonly name?: string;
  readonly placeholder?: string;
  readonly autoComplete?: 'off';
  readonly spellcheck?: boolean;
  readonly required?: boolean;
  readonly maxLength?: number;
  readonly min?: string;
  readonly max?: string | undefined;
  readonly step?: string;
  readonly inputMode?: 'decimal' | 'numeric';
}

export function TextField({
  label,
  hint,
  problem,
  onInput,
  type = 'text',
  ...input
}: TextFieldProps) {
  // The attribute types of `input` depend on its type; these attributes exist for all of them.
  const kind = type as 'text';
  return (
    <Field label={label} hint={hint} problem={problem}>
      {(attributes) => (
        <input
          {...attributes}
          {...input}
          type={kind}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

interface TextAreaProps extends Pick<FieldProps, 'label' | 'hint' | 'problem'> {
  readonly value: string;
  readonly rows: number;
  readonly class?: string;
  readonly placeholder?: string;
  readonly onInput: (value: string) => void;
}

export function TextArea({ label, hint, problem, onInput, ...input }: TextAreaProps) {
  return (
    <Field label={label} hint={hint} problem={problem}>
      {(attributes) => (
        <textarea
          {...attributes}
          {...input}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

/** A non-negative amount with any number of decimals. */
export function AmountField(props: TextFieldProps) {
  return <TextField {...props} type="number" min="0" step="any" inputMode="decimal" />;
}

/** A whole percent, 1 to 100. */
export function PercentField(props: TextFieldProps) {
  return <TextField {...props} type="number" min="1" max="100" inputMode="numeric" />;
}

export type Choices = readonly (readonly [value: string, label: string])[];

interface SelectProps extends Pick<FieldProps, 'label' | 'hint' | 'problem'> {
  readonly value: string;
  readonly options: Choices;
  readonly onInput: (value: string) => void;
}

export function Select({ label, hint, problem, value, options, onInput }: SelectProps) {
  return (
    <Field label={label} hint={hint} problem={problem}>
      {(attributes) => (
        <select
          {...attributes}
          value={value}
          onChange={(event) => onInput(event.currentTarget.value)}
        >
          {options.map(([one, name]) => (
            <option key={one} value={one}>
              {name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface SegmentsProps<T extends string> {
  readonly legend: string;
  readonly isLegendSeen?: boolean;
  readonly value: T;
  readonly options: readonly (readonly [value: T, label: string])[];
  readonly onInput: (value: T) => void;
}

export function Segments<T extends string>(props: SegmentsProps<T>) {
  const { legend, isLegendSeen = false, value, options, onInput } = props;
  const group = useId();
  return (
    <fieldset class="segments">
      <legend class={isLegendSeen ? '' : 'unseen'}>{legend}</legend>
      {options.map(([one, name]) => (
        <label key={one}>
          <input type="radio" name={group} checked={value === one} onChange={() => onInput(one)} />
          <span class="num">{name}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface AmountChoiceProps extends Pick<TextFieldProps, 'hint' | 'problem' | 'value' | 'onInput'> {
  readonly amounts: readonly number[];
}

/** An amount to pay: one of the usual ones, or another. */
export function AmountChoice({ amounts, ...field }: AmountChoiceProps) {
  const { value, onInput } = field;
  return (
    <>
      <Segments
        legend="Amount"
        isLegendSeen
        value={value}
        options={amounts.map((one) => [String(one), `$${one}`])}
        onInput={onInput}
      />
      <AmountField {...field} label="Amount in USD" />
    </>
  );
}

export interface Action {
  readonly isRunning: boolean;
  readonly error: ApiError | undefined;
  run(work: () => Promise<unknown>): Promise<boolean>;
  clear(): void;
}

/** The action of a button: runs once at a time and keeps its last error. */
export function useAction(): Action {
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState<ApiError>();
  return {
    isRunning,
    error,
    clear: () => setError(undefined),
    run: async (work) => {
      if (isRunning) return false;
      setRunning(true);
      setError(undefined);
      try {
        await work();
        return true;
      } catch (thrown) {
        const failure = ApiError.of(thrown);
        setError(failure);
        announce(failure.message);
        return false;
      } finally {
        setRunning(false);
      }
    },
  };
}

export function ErrorMessage({ error }: { error: ApiError | undefined }) {
  if (error === undefined) return null;
  return (
    <p class="error-message" role="alert">
      {error.message}
    </p>
  );
}

/** The server's message about one field; `field` is a path such as `thresholds.balanceUsd`. */
function problemOf(error: ApiError | undefined, field: string): string | undefined {
  let tree = error?.details;
  for (const name of field.split('.')) tree = isTree(tree) ? tree[name] : undefined;
  return firstProblem(tree);
}

function isTree(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}

/** The message at this level, else the first message below it. */
function firstProblem(tree: unknown): string | undefined {
  if (!isTree(tree)) return undefined;
  const { _errors: own, ...below } = tree;
  if (Array.isArray(own) && own.length > 0) return String(own[0]);
  return Object.values(below)
    .map(firstProblem)
    .find((problem) => problem !== undefined);
}

export interface FormState<Name extends string> {
  readonly action: Action;
  readonly values: Readonly<Record<Name, string>>;
  readonly set: (changes: Partial<Record<Name, string>>) => void;
  /** Props of a field. `sentAs`: its path in the request body, which finds the server's message. */
  readonly field: (name: Name, sentAs?: string) => BoundField;
}

interface BoundField {
  readonly value: string;
  readonly problem: string | undefined;
  readonly onInput: (value: string) => void;
}

export function useForm<Name extends string>(initial: Record<Name, string>): FormState<Name> {
  const action = useAction();
  const [values, setValues] = useState(initial);
  const set = (changes: Partial<Record<Name, string>>): void =>
    setValues((before) => ({ ...before, ...changes }));
  return {
    action,
    values,
    set,
    field: (name, sentAs = name) => ({
      value: values[name],
      problem: problemOf(action.error, sentAs),
      onInput: (value) => set({ [name]: value } as Partial<Record<Name, string>>), // one of them
    }),
  };
}

interface FormProps {
  readonly submit: () => void;
  readonly class?: string;
  readonly label?: string;
  readonly role?: 'search';
  readonly children: ComponentChildren;
}

export function Form({ submit, label, children, ...attributes }: FormProps) {
  return (
    <form
      {...attributes}
      aria-label={label}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {children}
    </form>
  );
}

interface ActionFormProps {
  readonly action: Action;
  readonly submit: () => void;
  readonly label: ComponentChildren;
  readonly others?: ComponentChildren;
  readonly children: ComponentChildren;
}

/** Fields, the error of the action, and the submit button. */
export function ActionForm({ action, submit, label, others, children }: ActionFormProps) {
  return (
    <Form submit={submit}>
      {children}
      <ErrorMessage error={action.error} />
      <p class="row end">
        {others}
        <button type="submit" class="primary" disabled={action.isRunning}>
          {label}
        </button>
      </p>
    </Form>
  );
}
