import { mount } from "svelte";
import "./design/tokens.css";
import "./design/ui.css";
import "./design/views.css";
import "./design/more.css";
import App from "./app/App.svelte";
import { allowNothingButEmpty } from "./app/trusted";

allowNothingButEmpty();
mount(App, { target: document.body });
