// The OpenAPI description of this server as a page.
import { h } from "../lib/dom.js";
import { call, tokenHeader } from "./client.js";

const description = await call("openapi.json");
const resolve = (value) =>
  value.$ref
    ? value.$ref
        .slice(2)
        .split("/")
        .reduce((found, key) => found[key], description)
    : value;

// The type of a schema in words, and the fields of an object as a list; a named schema once.
const shown = new Set();
function schemaOf(value) {
  if (shown.has(value.$ref)) return [`${value.$ref.split("/").at(-1)}, as above`];
  if (value.$ref) shown.add(value.$ref);
  const schema = resolve(value);
  if (schema.oneOf)
    return [
      h(
        "ul",
        {},
        schema.oneOf.map((each) => h("li", {}, schemaOf(each))),
      ),
    ];
  if (schema.enum) return [schema.enum.join(" or ")];
  if (schema.items) return ["array of ", ...schemaOf(schema.items)];
  if (schema.format === "binary") return ["bytes of a file"];
  const type = [schema.type].flat().join(" or ");
  if (!schema.properties) return [schema.contentEncoding ? `${type}, ${schema.contentEncoding}` : type];
  const fields = Object.entries(schema.properties).map(([name, each]) =>
    h("li", {}, h("code", {}, name), ": ", schemaOf(each), each.description && `. ${each.description}`),
  );
  return [value.$ref ? `${value.$ref.split("/").at(-1)}, an object` : type, h("ul", {}, fields)];
}

const contents = (content = {}) =>
  Object.entries(content).map(([kind, { schema, example }]) =>
    h(
      "li",
      {},
      h("code", {}, kind),
      ": ",
      example && h("pre", { tabindex: "0" }, JSON.stringify(example, null, 2)),
      schemaOf(schema),
    ),
  );

function operation(path, method, about) {
  const parameters = (about.parameters ?? []).map(({ name, description: text, schema }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, name)),
      h("td", {}, schemaOf(schema)),
      h("td", {}, text),
    ),
  );
  const responses = Object.entries(about.responses).map(([status, each]) => {
    const described = h("ul", {}, contents(each.content));
    return h("li", {}, h("code", {}, status), ` ${each.description}`, each.content && described);
  });
  const data = about.requestBody ? " --data-binary @image.jpg" : "";
  const token = about.security?.length === 0 ? "" : tokenHeader();
  return h(
    "section",
    {},
    h("h2", {}, h("code", {}, `${method.toUpperCase()} ${path}`)),
    h("p", {}, about.summary),
    h("pre", { tabindex: "0" }, `curl${data}${token} ${new URL(`.${path}`, location.href)}`),
    ...(parameters.length ? [h("h3", {}, "Parameters of the query"), h("table", {}, parameters)] : []),
    ...(about.requestBody
      ? [h("h3", {}, "Body of the request"), h("ul", {}, contents(about.requestBody.content))]
      : []),
    h("h3", {}, "Responses"),
    h("ul", {}, responses),
  );
}

const paths = document.getElementById("paths");
for (const [path, methods] of Object.entries(description.paths))
  for (const [method, about] of Object.entries(methods)) paths.append(operation(path, method, about));
const error = resolve({ $ref: "#/components/responses/Error" });
paths.append(
  h(
    "section",
    {},
    h("h2", {}, "Errors"),
    h("p", {}, error.description),
    h("ul", {}, contents(error.content)),
  ),
);
